//! The endpoint answers, and answers rightly. Makes nothing; its result is noted with the digest of what served.

use std::sync::Arc;

use async_trait::async_trait;
use kube::Client;

use super::facts::{ServeFacts, TestFacts};
use super::objects::or_unreachable;
use super::served::{Ground, Way};
use super::{Deps, encoded, moved};
use crate::config::Spec;
use crate::endpoint::{self, Outcome, TestResult, suite};
use crate::engine::clock;
use crate::engine::step::{Cx, Digest, Need, Seen, Step, StepId, Unit, all_of, table_of};
use crate::engine::wait::{Look, Wait};
use crate::error::{Failure, Kind, Resource, ServiceError, fail};
use crate::render::{self, Serving};

/// Goes up when the tests change, so that results of older ones are made anew.
const EDITION: u32 = 3;
/// Tests of every endpoint.
const TESTS: u64 = 4;
/// Seconds from a ready worker until the frontend has heard of it and lists the model. Assumed: a second or two were seen.
const LISTED_S: u64 = 120;

pub struct Test {
    pub deps: Arc<Deps>,
}

#[async_trait]
impl Step for Test {
    fn id(&self) -> StepId {
        StepId::Test
    }

    fn needs(&self) -> Vec<Need> {
        vec![all_of(StepId::Serve)]
    }

    fn inputs(&self) -> Digest {
        Digest::of(&("tests", EDITION, &self.deps.spec.precision.repository))
    }

    fn makes(&self) -> Vec<Resource> {
        Vec::new()
    }

    async fn observe(&self, cx: &Cx) -> anyhow::Result<Seen> {
        or_unreachable(self.look(cx).await)
    }

    async fn apply(&self, cx: &Cx) -> anyhow::Result<toml::Table> {
        let Some(ground) = Ground::look(&self.deps, cx).await? else {
            return Err(fail(Kind::Usage, "there is no serving Deployment to test").hint("nemo up --to serve").into());
        };
        let way = Way::to(&ground.client, &ground.serve).await?;
        let wait = Wait { limit_s: LISTED_S, ..self.deps.spec.wait.rollout };
        let look = || async {
            match way.lists(&ground.serve.model).await {
                Ok(true) => Ok(Look::Ready(())),
                Ok(false) => Ok(Look::NotYet("not listed".into())),
                Err(why) => Ok(Look::NotYet(why)),
            }
        };
        // Not listed in time: the test `models` says it with everything else.
        match cx.until(&format!("{} to be listed", ground.serve.model), wait, look).await {
            Err(error) if Failure::of(None, &error).kind == Kind::Interrupted => return Err(error),
            _ => {}
        }
        // An earlier result counts no more from here on, whatever becomes of this one.
        cx.reached("endpoint", table_of(&TestFacts { passed: Vec::new(), of: String::new() })?);
        let mut done = 0;
        let outcome = all(&self.deps.spec, &ground.client, &ground.serve, &way, |test, of| {
            done += 1;
            cx.note(test.to_string());
            cx.progress("tests", done, of, Unit::Items);
        });
        let facts = verdict(&outcome.await?, &way, &ground)?;
        table_of(&facts)
    }

    async fn remove(&self, _: &Cx) -> anyhow::Result<()> {
        Ok(())
    }

    async fn existing(&self, _: &Cx) -> anyhow::Result<Vec<Resource>> {
        Ok(Vec::new())
    }
}

impl Test {
    async fn look(&self, cx: &Cx) -> anyhow::Result<Seen> {
        let Some(ground) = Ground::look(&self.deps, cx).await? else { return Ok(Seen::Unreachable) };
        let Some(noted) = noted(cx) else { return Ok(Seen::Absent) };
        if noted.of != ground.served.digest {
            return Ok(Seen::Broken { why: "what serves has changed since it was tested".into() });
        }
        let listed = match Way::to(&ground.client, &ground.serve).await {
            Ok(way) => way.lists(&ground.serve.model).await,
            Err(error) => Err(error.to_string()),
        };
        Ok(match listed {
            Ok(true) => Seen::Ready { inputs: Some(self.inputs()), facts: table_of(&noted)? },
            Ok(false) => Seen::Broken { why: format!("the endpoint no longer lists {}", ground.serve.model) },
            Err(why) => Seen::Broken { why: format!("the endpoint does not answer: {why}") },
        })
    }
}

/// The stored result, if there is one that is whole.
fn noted(cx: &Cx) -> Option<TestFacts> {
    cx.facts.table(StepId::Test)?;
    cx.facts_of(StepId::Test).ok()
}

fn verdict(outcome: &Outcome, way: &Way, ground: &Ground) -> anyhow::Result<TestFacts> {
    let failures = outcome.failures();
    if failures.is_empty() {
        return Ok(TestFacts { passed: outcome.passed(), of: ground.served.digest.clone() });
    }
    let trouble = way.trouble().map(|why| format!(" ({why})")).unwrap_or_default();
    let failure = fail(Kind::Verification, format!("{} of {} tests failed: {}{trouble}", failures.len(), outcome.tests.len(), failures.join("; ")));
    let failure = hints(outcome).into_iter().fold(failure, |failure, hint| failure.hint(hint)).hint("nemo test asks again");
    Err(failure.hint(format!("kubectl -n {} logs deployment/{} shows what the frontend says", ground.serve.namespace, ground.serve.service)).into())
}

/// What to do about what failed, where that is known.
pub fn hints(outcome: &Outcome) -> Vec<&'static str> {
    let failed = |id: &str| outcome.tests.iter().any(|test| test.id == id && !test.passed());
    let mut hints = Vec::new();
    if failed("kv-moved") || failed("picture-encoded") {
        hints.push("until it is corrected serve without the hand-over: nemo up --topology aggregated");
    }
    if failed("kv-moved") {
        hints.push("nemo explain N29 is about keys and values that do not move, N26 about those that take another way than EFA");
    }
    if outcome.tests.iter().any(|test| test.id.starts_with("tool-call") && !test.passed()) {
        hints.push("nemo explain N86 is about parsers of tool calls and reasoning that fail, in the stream only or always");
    }
    if failed("picture-large") {
        hints.push("nemo explain N88 is about pictures over 1 MB");
    }
    if failed("picture-encoded") {
        hints.push("Dynamo's workers send pictures to encode workers where they have --route-to-encoder; of vLLM's own the container router of the pods that answer logs each picture that it sends, and why it could not");
    }
    hints
}

/// All tests of what serves; `done` is told of each, and how many there are.
async fn all(spec: &Spec, client: &Client, serve: &ServeFacts, way: &Way, mut done: impl FnMut(&TestResult, u64)) -> Result<Outcome, ServiceError> {
    let decode = moved::decode_workers(client, serve).await?;
    let encoders = encoded::encoders(client, serve).await?;
    let of = TESTS + u64::from(!decode.is_empty()) + u64::from(!encoders.is_empty());
    let mut outcome = endpoint::run(&way.endpoint, &serve.model, |test| done(test, of)).await;
    // An endpoint that does not answer moves nothing either, and has said why.
    if !decode.is_empty() && outcome.failures().is_empty() {
        let test = moved::test(client, serve, spec, &way.endpoint, &decode).await;
        done(&test, of);
        outcome.tests.push(test);
    }
    if !encoders.is_empty() && outcome.failures().is_empty() {
        let test = encoded::test(client, serve, &way.endpoint, &encoders).await;
        done(&test, of);
        outcome.tests.push(test);
    }
    Ok(outcome)
}

/// Where the settings serve, for who has no notes; refused where nothing of this deployment serves.
pub async fn place(deps: &Deps, client: &Client) -> anyhow::Result<ServeFacts> {
    let spec = &deps.spec;
    deps.look_live(client, spec.controllers()).await?;
    if super::served::served(client, &spec.serve.namespace, &spec.name).await?.is_none() {
        return Err(fail(Kind::Usage, format!("nothing of {:?} serves in the namespace {}", spec.name, spec.serve.namespace)).hint("nemo up --to serve").into());
    }
    Ok(super::serve::facts(&Serving::new(spec, render::Facts { controllers: deps.controllers(), ..render::Facts::stand_in(spec)? })))
}

/// Runs the tests outside a walk: for `nemo test`. Also the digest of what they were asked of.
pub async fn ask(spec: &Spec, client: &Client, serve: &ServeFacts, mut done: impl FnMut(&TestResult)) -> Result<(Outcome, String), ServiceError> {
    let served = super::served::served(client, &serve.namespace, &spec.name).await?.unwrap_or_default();
    let way = Way::to(client, serve).await?;
    Ok((all(spec, client, serve, &way, |test, _| done(test)).await?, served.digest))
}

/// Runs the tests and the whole suite after them: for `nemo test endpoint`.
pub async fn examine(spec: &Spec, client: &Client, serve: &ServeFacts, mut done: impl FnMut(&TestResult, u64)) -> Result<Outcome, ServiceError> {
    let way = Way::to(client, serve).await?;
    let model = &spec.model;
    let subject = suite::Subject {
        model: &serve.model,
        reasons: model.dyn_reasoning_parser.is_some(),
        calls_tools: model.dyn_tool_call_parser.is_some(),
        sees_pictures: spec.sees_pictures(),
        max_model_len: spec.max_model_len(),
        nonce: clock::now().as_millisecond().unsigned_abs(),
    };
    let more = suite::count(&subject);
    let mut outcome = all(spec, client, serve, &way, |test, of| done(test, of + more)).await?;
    let of = outcome.tests.len() as u64 + more;
    // One that does not even answer has nothing more to say.
    if outcome.tests.iter().any(TestResult::passed) {
        outcome.tests.extend(suite::run(&way.endpoint, &subject, |test| done(test, of)).await);
    }
    Ok(outcome)
}
