//! EKS's add-ons: which version is the default one for a Kubernetes version.

use aws_sdk_eks::Client;

use super::{Answer, Aws};
use crate::error::ServiceError;

/// The default version of an add-on for a Kubernetes version, else the newest that fits; `None`: there is none.
pub async fn default_version(aws: &Aws, addon: &str, kubernetes: &str) -> Result<Option<String>, ServiceError> {
    let call = Client::new(&aws.config).describe_addon_versions().addon_name(addon).kubernetes_version(kubernetes);
    let answer = call.send().await.or_none("eks", "DescribeAddonVersions", &["ResourceNotFoundException"])?;
    let versions: Vec<_> = answer.iter().flat_map(|answer| answer.addons()).flat_map(|addon| addon.addon_versions()).collect();
    let is_default = |version: &&&aws_sdk_eks::types::AddonVersionInfo| version.compatibilities().iter().any(|fit| fit.default_version());
    Ok(versions.iter().find(is_default).or(versions.first()).and_then(|version| version.addon_version()).map(str::to_owned))
}
