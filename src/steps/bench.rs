//! One run of aiperf inside the cluster. The Job's name carries what is measured and how, so a run that was made is read and not made again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

use super::Deps;
use super::bench_job::{BenchJob, KINDS, Standing};
use super::facts::{BenchFacts, ImagesFacts, StorageFacts, Stored, WeightsFacts};
use super::objects::{Objects, or_unreachable, steady};
use super::serve::IMAGE;
use super::served::Ground;
use crate::bench::plan::{AIPERF_VERSION, Limits, Load, Plan};
use crate::bench::result::RunResult;
use crate::bench::said::Said;
use crate::config::BenchSpec;
use crate::engine::step::{Cx, Digest, Need, Seen, Step, StepId, Unit, all_of, table_of};
use crate::engine::wait::Look;
use crate::error::{Kind, Resource, fail};
use crate::render;

pub struct Bench {
    pub deps: Arc<Deps>,
}

#[async_trait]
impl Step for Bench {
    fn id(&self) -> StepId {
        StepId::Bench
    }

    fn needs(&self) -> Vec<Need> {
        vec![all_of(StepId::Test)]
    }

    fn inputs(&self) -> Digest {
        Digest::of(&(self.load(), AIPERF_VERSION))
    }

    fn makes(&self) -> Vec<Resource> {
        vec![Resource::new("Job", format!("{}/bench-…", self.deps.spec.serve.namespace))]
    }

    async fn observe(&self, cx: &Cx) -> anyhow::Result<Seen> {
        or_unreachable(self.look(cx).await)
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let Some(ground) = Ground::look(&self.deps, cx).await? else {
            return Err(fail(Kind::Usage, "there is no serving Deployment to measure").hint("nemo up --to serve").into());
        };
        let run = self.run_name(&ground);
        let job = self.job(&ground, &run);
        match job.standing().await? {
            Standing::Working { .. } => {}
            Standing::Ended(result) if facts(&result).is_some() => {}
            Standing::Foreign => return Err(fail(Kind::Conflict, format!("Job {} is there and is not ours", job.id())).hint("remove it, or choose another --name").into()),
            _ => self.start(cx, &ground, &job, run).await?,
        }
        let result = self.follow(cx, &job).await?;
        let facts = facts(&result).ok_or_else(|| {
            fail(Kind::Verification, format!("the benchmark is not valid: {}", objections(&result)))
                .hint(format!("the run is kept in {} on the shared volume; the same command measures again", result.folder))
        })?;
        table_of(&facts)
    }

    async fn remove(&self, cx: &Cx) -> anyhow::Result<()> {
        self.objects().remove(cx, self.deps.spec.wait.rollout).await
    }

    async fn existing(&self, cx: &Cx) -> anyhow::Result<Vec<Resource>> {
        self.objects().existing(cx).await
    }
}

impl Bench {
    async fn look(&self, cx: &Cx) -> anyhow::Result<Seen> {
        let Some(ground) = Ground::look(&self.deps, cx).await? else { return Ok(Seen::Unreachable) };
        let run = self.run_name(&ground);
        let noted = cx.facts.table(StepId::Bench).and_then(|_| cx.facts_of::<BenchFacts>(StepId::Bench).ok());
        if let Some(noted) = &noted
            && noted.of == run
        {
            return Ok(Seen::Ready { inputs: Some(self.inputs()), facts: table_of(noted)? });
        }
        let job = self.job(&ground, &run);
        Ok(match job.standing().await? {
            Standing::Absent | Standing::Going if noted.is_some() => Seen::Broken { why: "what serves, or the load, has changed since it was measured".into() },
            Standing::Absent => Seen::Absent,
            Standing::Foreign => Seen::Foreign { what: format!("Job {}", job.id()) },
            Standing::Going => Seen::Pending { what: "an earlier Job is being deleted".into() },
            Standing::Working { words, .. } => Seen::Pending { what: words },
            Standing::Lost => Seen::Pending { what: "the run is done; its result has to be read from the shared volume".into() },
            Standing::Failed(why) => Seen::Broken { why },
            Standing::Ended(result) => match facts(&result) {
                Some(facts) => Seen::Ready { inputs: Some(self.inputs()), facts: table_of(&facts)? },
                None => Seen::Broken { why: format!("the last run is not valid: {}", objections(&result)) },
            },
        })
    }

    fn load(&self) -> Load {
        let BenchSpec { concurrency, requests, isl, osl, seed } = self.deps.spec.bench;
        Load { concurrency, requests, warmup: Load::warmup(concurrency, requests), isl, osl, seed }
    }

    fn objects(&self) -> Objects<'_> {
        Objects { deps: &self.deps, step: StepId::Bench, kinds: KINDS }
    }

    /// Names a run by what is measured and how.
    fn run_name(&self, ground: &Ground) -> String {
        Digest::of(&(&ground.served.digest, &ground.serve.model, self.load(), AIPERF_VERSION)).0
    }

    fn job(&self, ground: &Ground, run: &str) -> BenchJob<'_> {
        BenchJob { client: ground.client.clone(), namespace: ground.serve.namespace.clone(), name: format!("bench-{run}"), deployment: &self.deps.spec.name }
    }

    /// Makes the Job anew: what is there of other runs, or of this one without a result, goes first, since two loads at once measure neither.
    async fn start(&self, cx: &Cx, ground: &Ground, job: &BenchJob<'_>, run: String) -> anyhow::Result<()> {
        self.objects().remove(cx, self.deps.spec.wait.rollout).await?;
        let documents = self.objects().documents(render::bench(&self.manifest(cx, ground, job, run)?)?)?;
        self.objects().apply(cx, &ground.client, &documents, self.deps.spec.wait.rollout).await
    }

    fn manifest(&self, cx: &Cx, ground: &Ground, job: &BenchJob<'_>, run: String) -> anyhow::Result<render::Bench> {
        let images: ImagesFacts = cx.facts_of(StepId::Images)?;
        let image = |part: &str| images.stored.get(part).map(Stored::pinned).ok_or_else(|| fail(Kind::Usage, format!("the image {part} is not in ECR")).hint("nemo image push"));
        let (storage, weights): (StorageFacts, WeightsFacts) = (cx.facts_of(StepId::Storage)?, cx.facts_of(StepId::Weights)?);
        let shared = Path::new(render::SHARED);
        let plan = Plan {
            run,
            url: format!("http://{}.{}:{}", ground.serve.service, ground.serve.namespace, ground.serve.port),
            model: ground.serve.model.clone(),
            tokenizer: shared.join(&weights.path),
            shared: shared.to_owned(),
            load: self.load(),
            limits: Limits::default(),
            gpu_telemetry: Vec::new(),
            served: ground.served.clone(),
        };
        Ok(render::Bench {
            namespace: ground.serve.namespace.clone(),
            name: job.name.clone(),
            agent_image: image("agent")?,
            runtime_image: image(IMAGE)?,
            claim: storage.claim,
            shared: render::SHARED,
            plan: serde_json::to_string_pretty(&plan)?,
        })
    }

    /// Waits for the Job and passes on what the agent says.
    async fn follow(&self, cx: &Cx, job: &BenchJob<'_>) -> anyhow::Result<RunResult> {
        let told = Mutex::new(BTreeSet::new());
        let look = || async {
            match job.standing().await? {
                Standing::Ended(result) => Ok(Look::Ready(result)),
                Standing::Failed(why) => Err(fail(Kind::Remote, format!("the benchmark's Job failed: {why}")).hint("the same command makes it anew").into()),
                Standing::Absent | Standing::Going | Standing::Foreign => {
                    Err(fail(Kind::Conflict, format!("Job {} was deleted by somebody", job.id())).hint("the same command makes it anew").into())
                }
                Standing::Lost => Err(fail(Kind::Remote, "the Job is done, and its log cannot be read").hint("the same command reads the result from the shared volume").into()),
                Standing::Working { words, said } => {
                    let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
                    said.iter().for_each(|said| pass_on(cx, &mut told, said));
                    Ok(Look::NotYet(words))
                }
            }
        };
        // A connection that is gone for a while is no failure: a laptop that slept.
        cx.until("the benchmark", self.deps.spec.wait.job, || steady(look())).await
    }
}

/// A note is said once, however often its line is read.
fn pass_on(cx: &Cx, told: &mut BTreeSet<String>, said: &Said) {
    match said {
        Said::Progress { what, done, total } if told.insert(format!("{done} of {total} {what}")) => cx.progress(what.clone(), *done, *total, Unit::Items),
        Said::Note { text } if told.insert(text.clone()) => cx.note(text.clone()),
        _ => {}
    }
}

fn objections(result: &RunResult) -> String {
    result.last().map(|attempt| attempt.objections().join("; ")).unwrap_or_else(|| "no attempt was made".into())
}

/// What is noted of a run that is valid: such a run streamed, so TTFT and ITL are there.
fn facts(result: &RunResult) -> Option<BenchFacts> {
    let numbers = result.numbers()?;
    let (ttft, itl) = (numbers.ttft_ms.as_ref()?, numbers.itl_ms.as_ref()?);
    let attempt = result.last()?;
    Some(BenchFacts {
        of: result.run.clone(),
        aiperf_version: attempt.aiperf_version.clone(),
        concurrency: result.load.concurrency,
        requests: numbers.answered,
        errors: numbers.failed,
        ttft_ms_p50: ttft.p50,
        ttft_ms_p95: ttft.p95,
        itl_ms_p50: itl.p50,
        itl_ms_p95: itl.p95,
        output_tokens_per_second: numbers.output_tokens_per_second,
        request_throughput: numbers.requests_per_second,
        folder: format!("{}/{}", result.folder, attempt.folder),
    })
}
