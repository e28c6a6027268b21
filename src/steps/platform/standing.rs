//! Every part of the platform with what is wanted and what is there, for `nemo platform status`.

use futures::future::try_join_all;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::Api;
use serde::Serialize;

use super::super::Deps;
use super::super::facts::ImagesFacts;
use super::part::Part;
use super::{addons, charts, webhooks};
use crate::aws::eks::Eks;
use crate::engine::step::{Facts, StepId};
use crate::error::ServiceError;
use crate::k8s::{self, Answer};

/// How who brings a definition ends where that is not nemo.
const FOREIGN: &str = "which nemo does not install";
/// Definitions by which the forms of serving are written, and who brings them.
const DEFINITIONS: [(&str, &str); 4] = [
    ("leaderworkersets.leaderworkerset.x-k8s.io", "chart lws"),
    ("dynamographdeployments.nvidia.com", "chart dynamo-platform"),
    ("podcliquesets.grove.io", "Grove, which nemo does not install"),
    ("queues.scheduling.run.ai", "KAI, which nemo does not install"),
];

/// One part of the platform.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct PartStanding {
    /// `add-on coredns`, `chart lws`, `definition dynamographdeployments.nvidia.com`, `webhooks`.
    pub part: String,
    /// The version that this deployment is planned with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wanted: Option<String>,
    /// The version that is there; of a definition: the versions that are served, the stored one first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub there: Option<String>,
    /// `ready`, `not there`, or what it waits for or what is wrong with it.
    pub state: String,
    /// It is as it should be; also what is not there and nemo does not install.
    pub ok: bool,
}

/// All of it. The images' facts say which charts are in ECR; without them a chart is looked at by its release alone.
pub async fn standing(deps: &Deps, facts: &Facts) -> anyhow::Result<Vec<PartStanding>> {
    let client = deps.kube_of(&facts.get(StepId::Cluster)?)?;
    let eks = Eks::new(&deps.aws);
    let definitions = async { Ok(try_join_all(DEFINITIONS.iter().map(|(name, by)| definition(&client, name, by))).await?) };
    let (mut parts, charts, definitions, webhooks) =
        futures::try_join!(addons::standings(deps, &eks), releases(deps, facts, &client), definitions, webhooks::answering(&client, &deps.spec.name))?;
    parts.extend(charts);
    parts.extend(definitions);
    parts.push(PartStanding { part: "webhooks".into(), wanted: None, there: None, ok: webhooks == Part::There, state: words(&webhooks) });
    Ok(parts)
}

/// A part's state in words, and whether it is as it should be.
pub(super) fn told(part: &Part) -> (String, bool) {
    (words(part), *part == Part::There)
}

/// A part's state in words.
fn words(part: &Part) -> String {
    match part {
        Part::There => "ready".into(),
        Part::Missing => "not there".into(),
        Part::Pending(why) | Part::Broken(why) | Part::Fixed(why) => why.clone(),
        Part::Foreign(what) => format!("{what} is there and is not ours"),
    }
}

async fn releases(deps: &Deps, facts: &Facts, client: &kube::Client) -> anyhow::Result<Vec<PartStanding>> {
    let releases = k8s::releases(client).await?;
    let planned = facts.get::<ImagesFacts>(StepId::Images).ok().and_then(|images| charts::all(deps, &images).ok()).unwrap_or_default();
    let of = |(name, source): (&String, &crate::config::ChartSource)| {
        let release = releases.iter().find(|release| release.name == *name && release.namespace == source.namespace);
        let chart = planned.iter().find(|chart| chart.name == *name);
        let (state, ok) = match (chart, release) {
            (Some(chart), _) => told(&chart.part(&deps.spec.name, &releases)),
            (None, Some(release)) => (release.status.clone(), release.status == "deployed"),
            (None, None) => ("not there".into(), false),
        };
        PartStanding {
            part: format!("chart {name}"),
            wanted: chart.map(|chart| chart.version().to_owned()),
            there: release.and_then(|release| release.labels.get(charts::LABEL_VERSION).cloned()),
            state,
            ok,
        }
    };
    Ok(deps.spec.charts().map(of).collect())
}

async fn definition(client: &kube::Client, name: &str, by: &str) -> Result<PartStanding, ServiceError> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let found = api.get_opt(name).await.answer(&format!("GET customresourcedefinitions/{name}"))?;
    let part = format!("definition {name}");
    let Some(found) = found else { return Ok(PartStanding { part, wanted: None, there: None, state: format!("not there: it comes with {by}"), ok: by.ends_with(FOREIGN) }) };
    let mut served: Vec<_> = found.spec.versions.iter().filter(|version| version.served).collect();
    served.sort_by_key(|version| !version.storage);
    let established = found.status.and_then(|status| status.conditions).unwrap_or_default().iter().any(|condition| condition.type_ == "Established" && condition.status == "True");
    let there = served.iter().map(|version| version.name.as_str()).collect::<Vec<_>>().join(", ");
    Ok(PartStanding { part, wanted: None, there: Some(there), state: if established { "ready".into() } else { "not established yet".into() }, ok: established })
}
