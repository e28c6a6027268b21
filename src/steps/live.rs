//! What of the cluster decides how the model is served: which controllers make pods there, how many EFA adapters its nodes allocate.

use std::sync::PoisonError;

use kube::Client;

use super::Deps;
use crate::config::{Controllers, Form, Spec};
use crate::error::ServiceError;
use crate::k8s::offers::{groups, least, serves};

const EFA: &str = "vpc.amazonaws.com/efa";

/// As far as it was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Live {
    /// None: the form needs none.
    pub controllers: Option<Controllers>,
    /// None: no node of the type allocates any yet.
    pub efa: Option<u32>,
}

impl Live {
    /// Asks the cluster.
    pub async fn of(client: &Client, spec: &Spec) -> Result<Self, ServiceError> {
        let (controllers, efa) = futures::try_join!(controllers(client, spec), efa(client, spec))?;
        Ok(Self { controllers, efa })
    }
}

impl Deps {
    /// Asks the cluster, and keeps the answer for what is said without another question. `coming`: what a step before will have brought.
    pub async fn look_live(&self, client: &Client, coming: Controllers) -> Result<(), ServiceError> {
        let live = Live::of(client, &self.spec).await?;
        let live = Live { controllers: live.controllers.map(|there| there.and(coming)), ..live };
        *self.live.write().unwrap_or_else(PoisonError::into_inner) = live;
        Ok(())
    }

    /// EFA adapters of a node as they were seen.
    pub fn efa(&self) -> Option<u32> {
        self.live.read().unwrap_or_else(PoisonError::into_inner).efa
    }

    /// The controllers as they were seen; what the platform brings where nobody has looked.
    pub fn controllers(&self) -> Controllers {
        self.live.read().unwrap_or_else(PoisonError::into_inner).controllers.unwrap_or_else(|| self.spec.controllers())
    }
}

async fn controllers(client: &Client, spec: &Spec) -> Result<Option<Controllers>, ServiceError> {
    if spec.form().0 == Form::Deployments {
        return Ok(None);
    }
    let graphs = "dynamographdeployments";
    let (groups, lws, dgd_v1alpha1, dgd_v1beta1) = futures::try_join!(
        groups(client),
        serves(client, "leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
        serves(client, "nvidia.com/v1alpha1", graphs),
        serves(client, "nvidia.com/v1beta1", graphs),
    )?;
    let has = |group: &str| groups.contains(group);
    Ok(Some(Controllers { lws, dgd_v1alpha1, dgd_v1beta1, grove: has("grove.io"), kai: has("scheduling.run.ai"), volcano: has("scheduling.volcano.sh") }))
}

async fn efa(client: &Client, spec: &Spec) -> Result<Option<u32>, ServiceError> {
    least(client, &format!("node.kubernetes.io/instance-type={}{}", spec.compute.instance_type_prefix, spec.instance.type_name), EFA).await
}
