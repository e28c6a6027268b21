//! What one set of pods is, before it is written in any form.

use serde::Serialize;

use crate::config::Role;

/// Lines of a manifest that stand there for one reason, which becomes the comment above them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Because<T> {
    pub reason: String,
    pub lines: Vec<T>,
}

/// One flag of a command line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Argument {
    pub flag: String,
    pub values: Vec<String>,
}

/// One variable of a container.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Variable {
    pub name: String,
    pub value: Value,
}

/// Where the value of a variable is from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "lowercase", tag = "from", content = "is")]
pub enum Value {
    Text(String),
    /// A field of the pod.
    Field(&'static str),
}

/// Pods of one kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Component {
    pub role: Role,
    /// Of its objects: `vllm-worker`; in a graph of Dynamo's operator: `worker`.
    pub name: &'static str,
    /// As Dynamo calls it: `worker`, `prefill`, `decode`.
    pub dynamo_type: &'static str,
    pub command: Vec<&'static str>,
    /// Where it says how it is, and its metrics.
    pub port: Port,
    /// Reads pictures that encode workers have left, or is one of them.
    pub encoded: bool,
    /// Stands behind a router that sends pictures to the encode workers first.
    pub routed: bool,
    pub replicas: u32,
    /// Of one replica.
    pub nodes: u32,
    pub pods: u32,
    /// What the pods of a replica are: one template, or leader and follower.
    pub templates: Vec<Template>,
    pub env: Vec<Because<Variable>>,
    /// Does every pod register with the frontend, or the first of a replica only?
    pub one_registers: bool,
}

/// The port that probes ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Port {
    pub name: &'static str,
    pub number: u16,
    /// Answers 200 while the engine lives; `/health` while it takes requests.
    pub live: &'static str,
}

/// A pod template of a component.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Template {
    pub rank: Rank,
    pub args: Vec<Because<Argument>>,
}

/// What a pod is in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Rank {
    /// All are alike.
    Any,
    Leader,
    /// It runs shards of the leader's engine and answers to nobody else.
    Follower,
}

/// Flags for one reason.
pub(super) fn because<const N: usize>(reason: impl Into<String>, lines: [Argument; N]) -> Because<Argument> {
    Because { reason: reason.into(), lines: lines.into() }
}

/// A flag that takes nothing.
pub(super) fn flag(flag: &str) -> Argument {
    Argument { flag: flag.to_owned(), values: Vec::new() }
}

/// A flag with its value.
pub(super) fn set(flag: &str, value: impl ToString) -> Argument {
    Argument { flag: flag.to_owned(), values: vec![value.to_string()] }
}

/// Variables for one reason.
pub(super) fn variables<const N: usize>(reason: impl Into<String>, lines: [Variable; N]) -> Because<Variable> {
    Because { reason: reason.into(), lines: lines.into() }
}

/// A variable with its value.
pub(super) fn variable(name: &str, value: impl ToString) -> Variable {
    Variable { name: name.to_owned(), value: Value::Text(value.to_string()) }
}

/// A variable that holds a field of the pod.
pub(super) fn field(name: &str, path: &'static str) -> Variable {
    Variable { name: name.to_owned(), value: Value::Field(path) }
}
