//! CloudFormation stacks of a step: rendered, made or completed, waited for, taken away.

use std::time::{Duration, Instant};

use super::mark;
use crate::aws::cloudformation::{CloudFormation, Phase, Stack, Template};
use crate::engine::clock;
use crate::engine::event::EventKind;
use crate::engine::step::{Cx, Digest, OnChange, Seen, Unit};
use crate::engine::wait::{Look, Wait};
use crate::error::{Kind, ServiceError, fail};

/// A stack that there shall be.
pub(super) struct Wanted {
    template: Template,
    /// How many resources it has.
    resources: u64,
}

/// A stack of ours as its template says.
pub(super) fn wanted(rendered: crate::render::Rendered, name: &str, deployment: &str, inputs: &Digest) -> Wanted {
    let resources = rendered.manifests.first().and_then(|document| document.get("Resources")?.as_object()).map_or(0, |resources| resources.len() as u64);
    let (tags, token) = (mark::tags(deployment, inputs), mark::token(deployment, name, inputs, ""));
    Wanted { template: Template { name: name.to_owned(), body: rendered.text, tags, token }, resources }
}

/// What stacks that belong together look like; `None` when all are complete.
pub(super) fn seen(stacks: &[(String, Option<Stack>)], deployment: &str) -> Option<Seen> {
    if let Some((name, _)) = stacks.iter().find(|(_, stack)| stack.as_ref().is_some_and(|stack| !mark::is_ours(&stack.tags, deployment))) {
        return Some(Seen::Foreign { what: format!("CloudFormation stack {name}") });
    }
    let there: Vec<&Stack> = stacks.iter().filter_map(|(_, stack)| stack.as_ref()).collect();
    if there.is_empty() {
        return Some(Seen::Absent);
    }
    if let Some(stack) = there.iter().find(|stack| stack.phase() == Phase::Dead) {
        return Some(Seen::Broken { why: words(stack) });
    }
    if let Some(stack) = there.iter().find(|stack| matches!(stack.phase(), Phase::InProgress | Phase::Deleting)) {
        return Some(Seen::Pending { what: words(stack) });
    }
    let missing = stacks.iter().find(|(_, stack)| stack.is_none());
    missing.map(|(name, _)| Seen::Pending { what: format!("stack {name} is not there yet") })
}

/// What they say they were made from: what is wanted only if all of them say so.
pub(super) fn inputs(stacks: &[(String, Option<Stack>)], want: &Digest) -> Option<Digest> {
    let said = stacks.iter().filter_map(|(_, stack)| stack.as_ref()).filter_map(|stack| mark::inputs_of(&stack.tags));
    said.fold(None, |worst, inputs| if worst.as_ref().is_some_and(|worst| worst != want) { worst } else { Some(inputs) })
}

fn words(stack: &Stack) -> String {
    let reason = if stack.reason.is_empty() { String::new() } else { format!(" ({})", stack.reason) };
    format!("stack {} is {}{reason}", stack.name, stack.status)
}

/// The stacks of one step, while it works on them.
pub(super) struct Stacks<'a> {
    pub cx: &'a Cx,
    pub service: CloudFormation,
    pub wait: Wait,
    pub deployment: &'a str,
}

impl Stacks<'_> {
    /// Makes it, waits for one that is being made, or brings it to the template; then it is complete. One that could not be made has
    /// nothing in it that can be used: it is deleted and made anew, unless it was this very call that failed.
    pub(super) async fn ensure(&self, wanted: &Wanted, on_change: OnChange) -> anyhow::Result<Stack> {
        let name = wanted.template.name.as_str();
        let (mut template, mut tried) = (wanted.template.clone(), false);
        let mut found = self.service.describe(name).await?;
        loop {
            let Some(stack) = found else {
                self.service.create(&template).await?;
                tried = true;
                found = self.settled(name, wanted.resources).await?;
                continue;
            };
            if !mark::is_ours(&stack.tags, self.deployment) {
                return Err(self.foreign(name));
            }
            let same = mark::inputs_of(&stack.tags) == mark::inputs_of(&wanted.template.tags);
            found = match stack.phase() {
                Phase::Complete if same => return Ok(stack),
                Phase::InProgress | Phase::Deleting => {
                    tried = tried || stack.phase() == Phase::InProgress;
                    self.settled(name, wanted.resources).await?
                }
                Phase::Dead | Phase::RolledBack if tried => return Err(self.failed(&stack).await),
                Phase::Dead => {
                    self.cx.note(format!("{}: nothing in it can be used, so it is deleted and made anew", words(&stack)));
                    self.take_away(&stack).await?;
                    template.token = mark::token(self.deployment, name, &Digest::of(&template.tags), &stack.id);
                    None
                }
                Phase::Complete | Phase::RolledBack if on_change == OnChange::Refuse => {
                    return Err(fail(Kind::Conflict, format!("stack {name} was made from other settings and cannot be changed in place"))
                        .hint(format!("put the settings back, or remove it and make it anew: nemo cleanup --from {}", self.cx.step))
                        .into());
                }
                Phase::Complete | Phase::RolledBack => {
                    if !self.service.update(&template).await? {
                        return Ok(stack);
                    }
                    tried = true;
                    self.settled(name, wanted.resources).await?
                }
            };
        }
    }

    /// Deletes a stack of ours and waits until it is gone. One that is not there, or not ours, is left alone.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        match self.service.describe(name).await? {
            None => Ok(()),
            Some(stack) if !mark::is_ours(&stack.tags, self.deployment) => {
                self.cx.note(format!("stack {name} is not ours and stays"));
                Ok(())
            }
            Some(stack) => self.take_away(&stack).await,
        }
    }

    async fn take_away(&self, stack: &Stack) -> anyhow::Result<()> {
        // CloudFormation takes no other operation while one runs, but a deletion may cut a creation short.
        if stack.phase() == Phase::InProgress && stack.status != "CREATE_IN_PROGRESS" {
            self.until_idle(&stack.id, &stack.name, 0).await?;
        }
        if stack.phase() != Phase::Deleting {
            self.service.delete(&stack.id).await?;
        }
        let ended = self.until_idle(&stack.id, &stack.name, 0).await?;
        match ended {
            Some(stack) if stack.status != "DELETE_COMPLETE" => Err(self.failed(&stack).await),
            _ => Ok(()),
        }
    }

    /// Waits until nothing is being done about it. `None`: it is gone.
    async fn settled(&self, name: &str, resources: u64) -> anyhow::Result<Option<Stack>> {
        self.until_idle(name, name, resources).await
    }

    async fn until_idle(&self, id: &str, name: &str, resources: u64) -> anyhow::Result<Option<Stack>> {
        let look = || async {
            let Some(stack) = self.service.describe(id).await? else { return Ok(Look::Ready(None)) };
            let busy = stack.status.ends_with("_IN_PROGRESS");
            if resources > 0 && (busy || stack.phase() == Phase::Complete) {
                let done = if busy { self.service.count(&stack.id).await? } else { resources };
                self.cx.progress(format!("stack {name}"), done.min(resources), resources, Unit::Items);
            }
            Ok(if busy { Look::NotYet(stack.status) } else { Look::Ready(Some(stack)) })
        };
        self.cx.until(&format!("stack {name}"), self.wait, look).await
    }

    fn foreign(&self, name: &str) -> anyhow::Error {
        let message = format!("CloudFormation stack {name} is there and does not carry the tag of deployment {}", self.deployment);
        fail(Kind::Conflict, message).hint("choose another --name, or remove it yourself").into()
    }

    /// The failure of a stack's last operation, in the words of the service that refused.
    async fn failed(&self, stack: &Stack) -> anyhow::Error {
        let found = match self.service.first_failure(&stack.id).await {
            Ok(found) => found,
            Err(error) => return error.into(),
        };
        let reason = found.unwrap_or_else(|| stack.reason.clone());
        let code = code_in(&reason).unwrap_or(&stack.status).to_owned();
        ServiceError { service: "cloudformation".into(), operation: format!("stack {} {}", stack.name, stack.status), code, message: reason, request_id: None, status: None }.into()
    }
}

/// The code of the service behind CloudFormation, as it stands in the reason of a failed resource.
fn code_in(reason: &str) -> Option<&str> {
    let after = |mark: &str| reason.split_once(mark).map(|(_, rest)| rest.split([';', ')', ',']).next().unwrap_or(rest).trim());
    match after("Error Code: ").or_else(|| after("HandlerErrorCode: ")) {
        // Says only that it did not become ready; the sentence before says why.
        Some("NotStabilized" | "GeneralServiceException" | "InternalFailure") | None => None,
        Some("AlreadyExists") => Some("AlreadyExistsException"),
        code => code,
    }
}

/// Calls again while the error is one that passes by itself, for as long as `wait` says.
pub(super) async fn retried<T, F, C>(cx: &Cx, what: &str, wait: Wait, passes: fn(&ServiceError) -> bool, mut call: F) -> anyhow::Result<T>
where
    F: FnMut() -> C,
    C: Future<Output = Result<T, ServiceError>>,
{
    let began = Instant::now();
    for attempt in 1.. {
        match call().await {
            Err(error) if passes(&error) && began.elapsed() < Duration::from_secs(wait.limit_s) => {
                cx.events.send(Some(cx.step), EventKind::Retrying { what: what.to_owned(), why: error.to_string(), attempt });
            }
            answer => return Ok(answer?),
        }
        tokio::select! {
            () = cx.stop.cancelled() => break,
            () = clock::sleep(Duration::from_millis(wait.every_ms)) => {}
        }
    }
    Err(fail(Kind::Interrupted, format!("stopped while {what} was tried again")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_is_the_services_own() {
        for (reason, code) in [
            (
                "Nat: Performing this operation would exceed (Service: AmazonEC2; Status Code: 400; Error Code: NatGatewayLimitExceeded; Request ID: x)",
                Some("NatGatewayLimitExceeded"),
            ),
            ("Resource handler returned message: \"limit\" (RequestToken: a, HandlerErrorCode: ServiceLimitExceeded)", Some("ServiceLimitExceeded")),
            ("Resource handler returned message: \"slow\" (RequestToken: a, HandlerErrorCode: NotStabilized)", None),
            ("Resource creation cancelled", None),
        ] {
            assert_eq!(code_in(reason), code, "{reason}");
        }
    }
}
