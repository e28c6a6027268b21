//! The step `images`: everything that pods run, in our own ECR. Each image and chart is a part that others may wait for.

mod part;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use futures::future::{BoxFuture, join_all, try_join_all};
use tokio::sync::Semaphore;

use self::part::{Part, Source};
use super::Deps;
use super::facts::{ImagesFacts, Stored};
use crate::aws::TAG_DEPLOYMENT;
use crate::aws::ecr::{Ecr, Repository, StoredImage};
use crate::engine::clock;
use crate::engine::event::EventKind;
use crate::engine::step::{Cx, Digest, Need, Seen, Step, StepId, Unit, table_of};
use crate::error::{Kind, Resource, ServiceError, fail};
use crate::registry::{Anonymous, Copier, Login, Meter, Registry, Target, Upstream, Way, image_architecture, own_image};
use crate::secret::Secret;

pub struct Images {
    pub deps: Arc<Deps>,
}

/// A repository of ours or of our names, with what is in it.
struct Shelf {
    repository: Repository,
    ours: bool,
    images: Vec<StoredImage>,
}

/// What a copy works with.
struct Work<'a> {
    cx: &'a Cx,
    ecr: Ecr,
    /// Of the account's registry; its address is known with the first repository.
    copier: OnceLock<Copier>,
    /// Blobs at once: what `serve` waits for has its own slots, so that the small ones never wait behind it.
    small: Semaphore,
    large: Semaphore,
    stored: Mutex<BTreeMap<String, Stored>>,
}

impl Images {
    fn parts(&self) -> Vec<Part> {
        part::all(&self.deps.spec, &self.deps.pins)
    }

    /// The repositories of this deployment's names.
    async fn shelves(&self, ecr: &Ecr) -> anyhow::Result<BTreeMap<String, Shelf>> {
        let name = &self.deps.spec.name;
        let repositories = ecr.repositories(&format!("{name}/")).await?;
        let shelves = repositories.into_iter().map(|repository| async move {
            let (tags, images) = futures::try_join!(ecr.tags(&repository.arn), ecr.images(&repository.name))?;
            let ours = tags.get(TAG_DEPLOYMENT) == Some(name);
            Ok::<_, ServiceError>((repository.name.clone(), Shelf { repository, ours, images: images.unwrap_or_default() }))
        });
        Ok(try_join_all(shelves).await?.into_iter().collect())
    }

    fn one<'a>(&'a self, work: &'a Work<'a>, part: &'a Part, shelf: Option<&'a Shelf>) -> BoxFuture<'a, anyhow::Result<()>> {
        Box::pin(async move {
            let ended = self.bring(work, part, shelf).await;
            if let Err(error) = &ended {
                work.cx.note(format!("{error:#}; the other copies go on"));
            }
            ended
        })
    }

    async fn bring(&self, work: &Work<'_>, part: &Part, shelf: Option<&Shelf>) -> anyhow::Result<()> {
        let found = shelf.and_then(|shelf| part.stored(&shelf.repository, &shelf.images));
        let stored = match found {
            Some(stored) => stored,
            None => self.copy(work, part, shelf).await.with_context(|| format!("copying {}", part.name))?,
        };
        let facts = {
            let mut all = work.stored.lock().unwrap_or_else(PoisonError::into_inner);
            all.insert(part.name.clone(), stored);
            ImagesFacts { stored: all.clone() }
        };
        work.cx.reached(&part.name, table_of(&facts)?);
        Ok(())
    }

    async fn copy(&self, work: &Work<'_>, part: &Part, shelf: Option<&Shelf>) -> anyhow::Result<Stored> {
        let repository = self.repository(work, part, shelf).await?;
        let (host, name) = repository.uri.split_once('/').with_context(|| format!("ECR names a repository {:?}", repository.uri))?;
        let http = self.deps.http.clone();
        let copier = work.copier.get_or_init(|| Copier::new(Registry::new(http, host, Box::new(EcrLogin(work.ecr.clone())))));
        let meter = Meter::default();
        let notice = |what: &str, why: &str, attempt: u32| work.cx.events.send(Some(StepId::Images), EventKind::Retrying { what: what.into(), why: why.into(), attempt });
        let way = Way { slots: if part.large { &work.large } else { &work.small }, meter: &meter, notice: &notice };
        let tags = part.tags();
        let copying = self.push(copier, part, Target { repository: name, tags: &tags }, way);
        let digest = tokio::select! {
            () = work.cx.stop.cancelled() => return Err(fail(Kind::Interrupted, "stopped while copying").into()),
            () = say(work.cx, &part.name, &meter) => return Err(fail(Kind::Bug, "the listener of a copy ended before the copy").into()),
            digest = copying => digest?,
        };
        let (_, total) = meter.read();
        work.cx.progress(&part.name, total, total, Unit::Bytes);
        Ok(Stored { uri: repository.uri.clone(), tag: part.tag.clone(), digest })
    }

    async fn push(&self, copier: &Copier, part: &Part, to: Target<'_>, way: Way<'_>) -> anyhow::Result<String> {
        let http = &self.deps.http;
        match &part.source {
            Source::Registry(reference) => {
                let from = Registry::new(http.clone(), &reference.host, Box::new(Anonymous));
                let architecture = image_architecture(if part.large { &self.deps.spec.instance.architecture } else { &self.deps.spec.system_instance.architecture });
                Ok(copier.image(&from, reference, architecture, to, way).await?)
            }
            Source::Archive { address, digest } => {
                let artifact = Upstream::chart_archive(http, address, digest).await?;
                Ok(copier.artifact(&artifact, to, way).await?)
            }
            Source::Own => {
                let artifact = tokio::task::spawn_blocking(own_image).await.context("packing the agent's image")??;
                Ok(copier.artifact(&artifact, to, way).await?)
            }
            Source::Unreadable(why) => Err(fail(Kind::Config, why.clone()).into()),
        }
    }

    /// The part's repository, made if it is not there.
    async fn repository(&self, work: &Work<'_>, part: &Part, shelf: Option<&Shelf>) -> anyhow::Result<Repository> {
        let name = &self.deps.spec.name;
        match shelf {
            Some(shelf) if !shelf.ours => return Err(foreign(&part.repository).into()),
            // A tag cannot be moved: other bytes under it are in the way.
            Some(shelf) if part.blocked(&shelf.images) => {
                work.cx.note(format!("{} holds other bytes under the same tag than were planned: it is made anew", part.repository));
                work.ecr.delete(&part.repository).await?;
            }
            Some(shelf) => return Ok(shelf.repository.clone()),
            None => {}
        }
        if let Some(made) = work.ecr.create(&part.repository, &[(TAG_DEPLOYMENT, name)]).await? {
            return Ok(made);
        }
        // Somebody made it since we looked.
        let found = work.ecr.repository(&part.repository).await?.with_context(|| format!("the repository {} came and went", part.repository))?;
        if work.ecr.tags(&found.arn).await?.get(TAG_DEPLOYMENT) != Some(name) {
            return Err(foreign(&part.repository).into());
        }
        Ok(found)
    }
}

/// Says how far a copy is, for as long as it lasts.
async fn say(cx: &Cx, what: &str, meter: &Meter) {
    loop {
        clock::sleep(Duration::from_millis(500)).await;
        let (done, total) = meter.read();
        if total > 0 {
            cx.progress(what, done, total, Unit::Bytes);
        }
    }
}

fn foreign(repository: &str) -> crate::error::Advice {
    fail(Kind::Conflict, format!("the ECR repository {repository} is there and does not carry our tag {TAG_DEPLOYMENT}")).hint("use another --name, or delete that repository")
}

/// ECR's password for its registry.
struct EcrLogin(Ecr);

#[async_trait]
impl Login for EcrLogin {
    async fn credentials(&self) -> Result<Option<(String, Secret)>, ServiceError> {
        self.0.password().await.map(Some)
    }
}

#[async_trait]
impl Step for Images {
    fn id(&self) -> StepId {
        StepId::Images
    }

    fn needs(&self) -> Vec<Need> {
        Vec::new()
    }

    fn inputs(&self) -> Digest {
        Digest::of(&self.parts())
    }

    fn makes(&self) -> Vec<Resource> {
        self.parts().into_iter().map(|part| Resource::new("ECR repository", part.repository)).collect()
    }

    async fn observe(&self, _cx: &Cx) -> anyhow::Result<Seen> {
        let shelves = self.shelves(&Ecr::new(&self.deps.aws)).await?;
        let parts = self.parts();
        let mut stored = BTreeMap::new();
        for part in &parts {
            let Some(shelf) = shelves.get(&part.repository) else { continue };
            if !shelf.ours {
                return Ok(Seen::Foreign { what: format!("ECR repository {}", part.repository) });
            }
            if let Some(found) = part.stored(&shelf.repository, &shelf.images) {
                stored.insert(part.name.clone(), found);
            }
        }
        Ok(match stored.len() {
            0 => Seen::Absent,
            some if some < parts.len() => Seen::Pending { what: format!("{some} of {} images and charts are there", parts.len()) },
            _ => Seen::Ready { inputs: Some(self.inputs()), facts: table_of(&ImagesFacts { stored })? },
        })
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let ecr = Ecr::new(&self.deps.aws);
        let shelves = self.shelves(&ecr).await?;
        let slots = || Semaphore::new(self.deps.spec.images.connections.max(1) as usize);
        let work = Work { cx, ecr, copier: OnceLock::new(), small: slots(), large: slots(), stored: Mutex::default() };
        let parts = self.parts();
        // One that fails must not take the others with it: what they copied is kept, and whoever waits for it may start.
        let ended = join_all(parts.iter().map(|part| self.one(&work, part, shelves.get(&part.repository)))).await;
        ended.into_iter().collect::<anyhow::Result<Vec<()>>>()?;
        let stored = work.stored.into_inner().unwrap_or_else(PoisonError::into_inner);
        table_of(&ImagesFacts { stored })
    }

    async fn remove(&self, _cx: &Cx) -> anyhow::Result<()> {
        let ecr = Ecr::new(&self.deps.aws);
        let ours = self.shelves(&ecr).await?.into_values().filter(|shelf| shelf.ours);
        let names: Vec<String> = ours.map(|shelf| shelf.repository.name).collect();
        let removed = join_all(names.iter().map(|name| ecr.delete(name))).await;
        removed.into_iter().collect::<Result<Vec<bool>, _>>()?;
        Ok(())
    }

    async fn existing(&self, _cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        let shelves = self.shelves(&Ecr::new(&self.deps.aws)).await?;
        Ok(shelves.into_values().filter(|shelf| shelf.ours).map(|shelf| Resource::new("ECR repository", shelf.repository.name)).collect())
    }
}
