//! CloudFormation: stacks with their status, outputs and tags; the reason of a failure in the service's own words.

use std::collections::BTreeMap;

use aws_sdk_cloudformation::Client;
use aws_sdk_cloudformation::types::{Capability, ResourceStatus, StackResource, Tag};

use super::{Answer, Aws};
use crate::error::ServiceError;

const SERVICE: &str = "cloudformation";

/// A stack as DescribeStacks shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Stack {
    /// The ARN; unlike the name it also finds a stack that is deleted.
    pub id: String,
    pub name: String,
    /// `CREATE_COMPLETE`, `ROLLBACK_COMPLETE` …
    pub status: String,
    /// Why it is in that status, if the service says so.
    pub reason: String,
    pub outputs: BTreeMap<String, String>,
    pub tags: BTreeMap<String, String>,
}

/// What a status asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Made, and as it was last asked to be.
    Complete,
    /// The last update did not work and was taken back: what was there before is there.
    RolledBack,
    /// Something is being done.
    InProgress,
    /// It is being deleted.
    Deleting,
    /// It could not be made or deleted: nothing but deleting helps.
    Dead,
}

impl Stack {
    /// What its status asks for.
    pub fn phase(&self) -> Phase {
        match self.status.as_str() {
            "CREATE_COMPLETE" | "UPDATE_COMPLETE" | "IMPORT_COMPLETE" => Phase::Complete,
            "UPDATE_ROLLBACK_COMPLETE" => Phase::RolledBack,
            "DELETE_IN_PROGRESS" | "DELETE_COMPLETE" => Phase::Deleting,
            status if status.ends_with("_IN_PROGRESS") => Phase::InProgress,
            _ => Phase::Dead,
        }
    }
}

/// What a stack is to be made from.
#[derive(Debug, Clone)]
pub struct Template {
    /// Of the stack.
    pub name: String,
    /// The rendered template.
    pub body: String,
    /// Passed on to every resource by CloudFormation.
    pub tags: BTreeMap<String, String>,
    /// Says that a repeated call is the same call.
    pub token: String,
}

/// The service, as far as it is used here.
#[derive(Debug, Clone)]
pub struct CloudFormation(Client);

impl CloudFormation {
    /// Of this account and region.
    pub fn new(aws: &Aws) -> Self {
        Self(Client::new(&aws.config))
    }

    /// The stack of that name or id. A deleted stack is only found by its id.
    pub async fn describe(&self, stack: &str) -> Result<Option<Stack>, ServiceError> {
        let found = match self.0.describe_stacks().stack_name(stack).send().await.answer(SERVICE, "DescribeStacks") {
            // CloudFormation has no code of its own for "not there".
            Err(error) if error.is(&["ValidationError"]) && error.message.contains("does not exist") => return Ok(None),
            answer => answer?,
        };
        Ok(found.stacks.unwrap_or_default().into_iter().next().map(shown))
    }

    /// Begins to make it. `false`: one of that name is there already.
    pub async fn create(&self, template: &Template) -> Result<bool, ServiceError> {
        let answer = self
            .0
            .create_stack()
            .stack_name(&template.name)
            .template_body(&template.body)
            .set_tags(Some(tags(&template.tags)))
            .capabilities(Capability::CapabilityIam)
            .client_request_token(&template.token)
            .send()
            .await;
        Ok(answer.or_none(SERVICE, "CreateStack", &["AlreadyExistsException"])?.is_some())
    }

    /// Begins to bring it to the template and tags. `false`: there is nothing to bring.
    pub async fn update(&self, template: &Template) -> Result<bool, ServiceError> {
        // No token: one that was used by an update that failed would make this call a repetition of it.
        let call = self.0.update_stack().stack_name(&template.name).template_body(&template.body).set_tags(Some(tags(&template.tags)));
        match call.capabilities(Capability::CapabilityIam).send().await.answer(SERVICE, "UpdateStack") {
            Err(error) if error.message.contains("No updates are to be performed") => Ok(false),
            answer => answer.map(|_| true),
        }
    }

    /// Begins to delete it. A stack that is not there is no error.
    pub async fn delete(&self, stack: &str) -> Result<(), ServiceError> {
        self.0.delete_stack().stack_name(stack).send().await.answer(SERVICE, "DeleteStack").map(drop)
    }

    /// Why the last operation failed: the first resource that did, in the service's words.
    pub async fn first_failure(&self, stack: &str) -> Result<Option<String>, ServiceError> {
        let mut pages = self.0.describe_stack_events().stack_name(stack).into_paginator().send();
        let (mut failure, mut of_the_stack) = (None, None);
        // Newest first: the first failure of the last operation is the last one before that operation's start.
        'events: while let Some(page) = pages.next().await {
            for event in page.answer(SERVICE, "DescribeStackEvents")?.stack_events.unwrap_or_default() {
                let status = event.resource_status().map(|status| status.as_str()).unwrap_or_default();
                let of_stack = event.physical_resource_id() == event.stack_id();
                let reason = event.resource_status_reason().unwrap_or_default();
                if of_stack && reason == "User Initiated" {
                    break 'events;
                }
                if of_stack && !reason.is_empty() {
                    of_the_stack = Some(reason.to_owned());
                }
                // "Resource creation cancelled" says only that another one failed.
                if !of_stack && status.ends_with("_FAILED") && !reason.contains("cancelled") {
                    failure = Some(format!("{} {}: {reason}", event.logical_resource_id().unwrap_or("?"), event.resource_type().unwrap_or("")));
                }
            }
        }
        Ok(failure.or(of_the_stack))
    }

    /// How many of its resources are there.
    pub async fn count(&self, stack: &str) -> Result<u64, ServiceError> {
        let answer = self.0.describe_stack_resources().stack_name(stack).send().await.answer(SERVICE, "DescribeStackResources")?;
        let there = |row: &&StackResource| row.resource_status() == Some(&ResourceStatus::CreateComplete) || row.resource_status() == Some(&ResourceStatus::UpdateComplete);
        Ok(answer.stack_resources().iter().filter(there).count() as u64)
    }
}

fn tags(tags: &BTreeMap<String, String>) -> Vec<Tag> {
    tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}

fn shown(stack: aws_sdk_cloudformation::types::Stack) -> Stack {
    let outputs = stack.outputs.unwrap_or_default().into_iter();
    let tags = stack.tags.unwrap_or_default().into_iter();
    Stack {
        id: stack.stack_id.unwrap_or_default(),
        name: stack.stack_name.unwrap_or_default(),
        status: stack.stack_status.map(|status| status.as_str().to_owned()).unwrap_or_default(),
        reason: stack.stack_status_reason.unwrap_or_default(),
        outputs: outputs.map(|output| (output.output_key.unwrap_or_default(), output.output_value.unwrap_or_default())).collect(),
        tags: tags.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect(),
    }
}
