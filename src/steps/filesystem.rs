//! Step `filesystem`: FSx for Lustre in the GPU nodes' zone, large enough for the weights.

use std::sync::Arc;

use async_trait::async_trait;

use super::facts::{FilesystemFacts, NetworkFacts};
use super::nodegroup::pinned_subnet;
use super::{Deps, mark, stack};
use crate::aws::fsx::{FileSystem, Fsx, NewFileSystem};
use crate::config::capacity_gib;
use crate::engine::step::{Cx, Digest, Need, OnChange, Seen, Step, StepId, part_of, table_of};
use crate::engine::wait::{Look, Wait};
use crate::error::{Kind, Resource, ServiceError, fail};

/// Hours that a month has in AWS's prices.
const HOURS_A_MONTH: f64 = 730.0;

/// The file system.
pub struct Filesystem {
    pub deps: Arc<Deps>,
}

impl Filesystem {
    fn name(&self) -> &str {
        &self.deps.spec.name
    }

    /// By the larger of what the catalogue and the hub say: a hub that serves less now does not shrink the volume.
    fn capacity(&self) -> anyhow::Result<u32> {
        let catalogue = u64::from(self.deps.spec.precision.weights_gb.value) * 1_000_000_000;
        let found = capacity_gib(self.deps.spec.storage.capacity_gib, self.deps.pins.weights.bytes.max(catalogue));
        found.map_err(|why| fail(Kind::Config, format!("storage.capacity_gib: {why}")).hint("storage.capacity_gib = 0 takes the smallest that fits").into())
    }

    /// Ours that is not on its way out; the oldest, should a crash ever have left two.
    async fn found(&self, service: &Fsx) -> anyhow::Result<Option<FileSystem>> {
        Ok(service.of_deployment(self.name()).await?.into_iter().find(|system| system.lifecycle != "DELETING"))
    }

    async fn create(&self, cx: &Cx, service: &Fsx, before: &str) -> anyhow::Result<FileSystem> {
        let network: NetworkFacts = cx.facts_of(StepId::Network)?;
        let mut tags = mark::tags(self.name(), &self.inputs());
        tags.insert("Name".into(), self.name().to_owned());
        let new = NewFileSystem {
            subnet: pinned_subnet(&self.deps, cx)?,
            security_group: network.filesystem_security_group,
            capacity_gib: self.capacity()?,
            throughput: self.deps.spec.storage.throughput,
            tags,
            token: mark::token(self.name(), "filesystem", &self.inputs(), before),
        };
        // A rule that was made a moment ago is not yet known everywhere.
        let young = |error: &ServiceError| error.message.contains("port 988");
        let wait = Wait { every_ms: self.deps.spec.wait.stack.every_ms.min(5000), limit_s: 60 };
        stack::retried(cx, "CreateFileSystem", wait, young, || service.create(&new)).await
    }

    /// Waits until it is not being made or changed. `None`: it is gone.
    async fn settled(&self, cx: &Cx, service: &Fsx, id: &str) -> anyhow::Result<Option<FileSystem>> {
        let look = || async {
            Ok(match service.describe(id).await? {
                Some(system) if matches!(system.lifecycle.as_str(), "CREATING" | "UPDATING" | "DELETING") => Look::NotYet(system.lifecycle),
                found => Look::Ready(found),
            })
        };
        cx.until(&format!("file system {id}"), self.deps.spec.wait.filesystem, look).await
    }

    async fn take_away(&self, cx: &Cx, service: &Fsx, system: &FileSystem) -> anyhow::Result<()> {
        // FSx refuses to delete one that is being made.
        if system.lifecycle == "CREATING" {
            self.settled(cx, service, &system.id).await?;
        }
        if system.lifecycle != "DELETING" && !service.delete(&system.id).await? {
            return Ok(());
        }
        match self.settled(cx, service, &system.id).await? {
            None => Ok(()),
            Some(system) => Err(failed("DeleteFileSystem", &system).into()),
        }
    }
}

#[async_trait]
impl Step for Filesystem {
    fn id(&self) -> StepId {
        StepId::Filesystem
    }

    fn needs(&self) -> Vec<Need> {
        vec![part_of(StepId::Network, "subnets")]
    }

    fn inputs(&self) -> Digest {
        Digest::of(&(self.capacity().unwrap_or_default(), self.deps.spec.storage.throughput, &self.deps.pins.zone_id))
    }

    fn on_change(&self) -> OnChange {
        OnChange::Refuse
    }

    fn makes(&self) -> Vec<Resource> {
        let (gib, month) = (self.capacity().unwrap_or_default(), self.deps.pins.prices.filesystem_gb_month);
        let price = (month > 0.0).then_some(month * f64::from(gib) / HOURS_A_MONTH);
        vec![Resource::new(format!("FSx for Lustre file system, {gib} GiB"), self.name()).costing(price)]
    }

    async fn observe(&self, _cx: &Cx) -> anyhow::Result<Seen> {
        let Some(system) = self.found(&Fsx::new(&self.deps.aws)).await? else { return Ok(Seen::Absent) };
        let what = format!("file system {} is {}", system.id, system.lifecycle);
        Ok(match system.lifecycle.as_str() {
            "AVAILABLE" | "UPDATING" => Seen::Ready { inputs: mark::inputs_of(&system.tags), facts: table_of(&facts(system))? },
            "CREATING" => Seen::Pending { what },
            _ => Seen::Broken { why: format!("{what}: {}", system.failure.as_deref().unwrap_or("FSx gives no reason")) },
        })
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let service = Fsx::new(&self.deps.aws);
        let (mut tried, mut before) = (false, String::new());
        let mut found = self.found(&service).await?;
        loop {
            let Some(system) = found else {
                let made = self.create(cx, &service, &before).await?;
                tried = true;
                found = self.settled(cx, &service, &made.id).await?;
                continue;
            };
            found = match system.lifecycle.as_str() {
                "AVAILABLE" => return table_of(&facts(system)),
                "CREATING" | "UPDATING" | "DELETING" => {
                    tried = tried || system.lifecycle == "CREATING";
                    self.settled(cx, &service, &system.id).await?
                }
                _ if tried || system.lifecycle != "FAILED" => return Err(failed("CreateFileSystem", &system).into()),
                _ => {
                    cx.note(format!("file system {} is FAILED ({}): it is deleted and made anew", system.id, system.failure.as_deref().unwrap_or("no reason given")));
                    self.take_away(cx, &service, &system).await?;
                    before = system.id;
                    None
                }
            };
        }
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        let service = Fsx::new(&self.deps.aws);
        let ours = service.of_deployment(self.name()).await?;
        let ended = futures::future::join_all(ours.iter().map(|system| self.take_away(cx, &service, system))).await;
        ended.into_iter().collect()
    }

    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        let month = self.deps.pins.prices.filesystem_gb_month;
        let ours = Fsx::new(&self.deps.aws).of_deployment(self.name()).await?;
        let shown = ours.into_iter().map(|system| {
            let price = (month > 0.0).then_some(month * f64::from(system.capacity_gib) / HOURS_A_MONTH);
            Resource::new(format!("FSx for Lustre file system, {} GiB", system.capacity_gib), system.id).costing(price)
        });
        Ok(shown.collect())
    }
}

fn facts(system: FileSystem) -> FilesystemFacts {
    FilesystemFacts { id: system.id, dns_name: system.dns_name, mount_name: system.mount_name, capacity_gib: system.capacity_gib }
}

fn failed(operation: &str, system: &FileSystem) -> ServiceError {
    let message = system.failure.clone().unwrap_or_else(|| format!("it ended as {}, and FSx gives no reason", system.lifecycle));
    ServiceError { service: "fsx".into(), operation: format!("{operation} {}", system.id), code: system.lifecycle.clone(), message, request_id: None, status: None }
}
