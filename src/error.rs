//! The one place that words and hints a failure.
//!
//! Adapters return [`ServiceError`]; steps add context with `anyhow`; at the edge of a step [`Failure::of`] makes the
//! one thing that a user is shown: what failed in the service's own words, what it left behind, what to type next.

use std::fmt;

use serde::Serialize;

/// What kind of failure it is; its number is the exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A defect of `nemo`.
    Bug = 1,
    /// Flags or arguments that make no sense, or a question that nobody can answer.
    Usage = 2,
    /// A setting, a catalogue file or the state file is wrong.
    Config = 10,
    /// No credentials, wrong ones, or not enough permission.
    Credentials = 11,
    /// Quota, offering, reservation: the capacity is not there.
    Capacity = 12,
    /// Something of that name exists and is not ours, or somebody else holds the lock.
    Conflict = 13,
    /// Waited for as long as the settings allow.
    Timeout = 14,
    /// A service answered with an error, or with something that is no answer.
    Remote = 15,
    /// It runs, but a test or a check says that it is wrong.
    Verification = 16,
    /// Reading or writing a local file.
    LocalIo = 17,
    /// `nemo plan --check`, `nemo diff`: there is something to do.
    PlanHasChanges = 20,
    /// Ctrl-C.
    Interrupted = 130,
}

impl Kind {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        self as u8
    }
}

/// An error answer of a service, in the service's own words.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{service} {operation}: {code}: {message}{}", request_id.as_ref().map(|id| format!(" (request {id})")).unwrap_or_default())]
pub struct ServiceError {
    /// `eks`, `cloudformation`, `kubernetes`, `registry`, `hub` …
    pub service: String,
    /// The operation as the service names it: `CreateCluster`, `PATCH deployments/vllm-worker`.
    pub operation: String,
    /// The service's error code, or the HTTP status where it has none.
    pub code: String,
    /// The service's message, unchanged.
    pub message: String,
    /// The request id, when the answer had one.
    pub request_id: Option<String>,
    /// HTTP status, when there was an answer.
    pub status: Option<u16>,
}

impl ServiceError {
    /// Is it one of these codes?
    pub fn is(&self, codes: &[&str]) -> bool {
        codes.contains(&self.code.as_str())
    }

    /// The kind by status and code. New codes go here and nowhere else.
    pub fn kind(&self) -> Kind {
        const CREDENTIALS: &[&str] = &[
            "AccessDenied",
            "AccessDeniedException",
            "UnauthorizedOperation",
            "ExpiredToken",
            "ExpiredTokenException",
            "InvalidClientTokenId",
            "UnrecognizedClientException",
            "SignatureDoesNotMatch",
            "AuthFailure",
            "MissingAuthenticationToken",
            "CredentialsNotLoaded",
            "Unauthorized",
            "Forbidden",
        ];
        const CAPACITY: &[&str] = &[
            "InsufficientInstanceCapacity",
            "InsufficientCapacityException",
            "LimitExceededException",
            "ServiceQuotaExceededException",
            "VcpuLimitExceeded",
            "AddressLimitExceeded",
            "VpcLimitExceeded",
            "NatGatewayLimitExceeded",
            "InsufficientFreeAddressesInSubnet",
            "UnsupportedAvailabilityZoneException",
            "ServiceLimitExceeded",
            "ResourceLimitExceededException",
            "AsgInstanceLaunchFailures",
            "MaxSpotInstanceCountExceeded",
        ];
        const CONFLICT: &[&str] = &["AlreadyExistsException", "ResourceInUseException", "RepositoryAlreadyExistsException", "EntityAlreadyExists", "Conflict", "NotOurs"];
        if self.namespace_goes() {
            Kind::Conflict
        } else if self.denied() {
            Kind::Config
        } else if self.is(CREDENTIALS) || matches!(self.status, Some(401 | 403)) {
            Kind::Credentials
        } else if self.known(CAPACITY).is_some() {
            Kind::Capacity
        } else if self.is(CONFLICT) {
            Kind::Conflict
        } else if self.is(&["AddressInUse"]) {
            Kind::LocalIo
        } else {
            Kind::Remote
        }
    }

    /// The API server forbids new objects in a namespace that is being deleted: no lack of rights.
    fn namespace_goes(&self) -> bool {
        self.service == "kubernetes" && self.message.contains("because it is being terminated")
    }

    /// A webhook of the cluster says no to what the object is to be, with 403 as well: no lack of rights either.
    fn denied(&self) -> bool {
        self.service == "kubernetes" && self.message.contains("denied the request")
    }

    /// The code, or one that is quoted in the message: a node group or a stack fails with a code of its own, and says in words why.
    fn known(&self, codes: &[&'static str]) -> Option<&'static str> {
        codes.iter().copied().find(|code| self.code == *code || self.message.contains(code))
    }

    /// What to do about it, for the codes that have one known answer.
    pub fn hint(&self) -> Option<&'static str> {
        const QUOTED: &[&str] =
            &["InsufficientInstanceCapacity", "AsgInstanceLaunchFailures", "NatGatewayLimitExceeded", "AddressLimitExceeded", "VpcLimitExceeded", "VcpuLimitExceeded"];
        match self.known(QUOTED).unwrap_or(&self.code) {
            "ExpiredToken" | "ExpiredTokenException" => Some("the credentials have expired: sign in again (aws sso login, or new keys), then run the same command"),
            "InvalidClientTokenId" | "UnrecognizedClientException" | "SignatureDoesNotMatch" | "AuthFailure" => {
                Some("the access key is not known or its secret is wrong: check AWS_PROFILE, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
            }
            "CredentialsNotLoaded" => Some("set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run where a role is attached"),
            "AccessDenied" | "AccessDeniedException" | "UnauthorizedOperation" => Some("the identity may not do this: ask for the permission named above"),
            "InsufficientInstanceCapacity" | "AsgInstanceLaunchFailures" => {
                Some("on demand there is none now: reserve capacity (ODCR or a Capacity Block), or try another zone with --zone")
            }
            "ResourceLimitExceededException"
            | "LimitExceededException"
            | "NatGatewayLimitExceeded"
            | "AddressLimitExceeded"
            | "VpcLimitExceeded"
            | "VcpuLimitExceeded"
            | "ServiceQuotaExceededException"
            | "ServiceLimitExceeded" => Some("raise the quota named above in Service Quotas, then run the same command"),
            _ if self.namespace_goes() => Some("wait until the namespace is gone (kubectl get namespaces), then run the same command: it is made anew"),
            _ if self.service == "kubernetes" && self.message.contains("failed calling webhook") => {
                Some("an operator's webhook does not answer: nemo platform status shows which part is not ready, nemo explain says why; then run the same command")
            }
            _ if self.denied() => Some("what the webhook names comes from the settings, a template or a patch: nemo render --out DIR shows the object"),
            "VersionNotServed" => Some("--as dgd-v1alpha1 or --as auto takes a version that is served; nemo up --to platform brings the platform to the version that is wanted"),
            "Unreachable" if self.service == "kubernetes" => {
                Some("the API server must be reachable from here: look at the cluster's public access, your VPN or proxy, then run the same command")
            }
            "AddressInUse" => Some("another program has that port: nemo connect --port 0 takes any that is free"),
            "Conflict" if self.service == "kubernetes" => Some("take the change to these fields back, or delete the object: the next run makes it anew"),
            "Unauthorized" if self.service == "kubernetes" => Some("the identity has no access entry in the cluster: use the one that made it, or let its owner add yours"),
            _ => None,
        }
    }
}

/// Something of ours that exists now, and what it costs while it does.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Resource {
    /// What it is, in the service's words: `EKS cluster`, `NAT gateway`, `FSx for Lustre file system`.
    pub what: String,
    /// Its name or id.
    pub id: String,
    /// US dollars an hour, where a price is known.
    pub usd_per_hour: Option<f64>,
    /// AWS asks money for it, whether a price is known or not.
    #[serde(skip)]
    #[schemars(skip)]
    pub bills: bool,
}

impl Resource {
    /// A resource without a known price.
    pub fn new(what: impl Into<String>, id: impl Into<String>) -> Self {
        Self { what: what.into(), id: id.into(), usd_per_hour: None, bills: false }
    }

    /// US dollars an hour of all of them, as far as prices are known.
    pub fn hourly<'a>(resources: impl IntoIterator<Item = &'a Self>) -> f64 {
        // Not `sum`: that of nothing is -0.0.
        resources.into_iter().filter_map(|resource| resource.usd_per_hour).fold(0.0, |sum, usd| sum + usd)
    }

    /// The same where it can be told: not when something bills and no price at all is known.
    pub fn hourly_if_known<'a>(resources: impl IntoIterator<Item = &'a Self> + Clone) -> Option<f64> {
        let unknown = resources.clone().into_iter().any(|resource| resource.bills) && resources.clone().into_iter().all(|resource| resource.usd_per_hour.is_none());
        (!unknown).then(|| Self::hourly(resources))
    }

    /// The same in words: `$98.30 an hour`, and what that leaves out. Nothing is free only because its price is not known.
    pub fn hourly_words<'a>(resources: impl IntoIterator<Item = &'a Self> + Clone) -> String {
        let unknown: Vec<&str> =
            resources.clone().into_iter().filter(|resource| resource.bills && resource.usd_per_hour.is_none()).map(|resource| resource.what.as_str()).collect();
        let hourly = Self::hourly(resources);
        match unknown.as_slice() {
            [] => format!("about ${hourly:.2} an hour"),
            _ if hourly <= 0.0 => format!("price unknown: {} cost money (nemo check finds the prices)", unknown.join(", ")),
            _ => format!("about ${hourly:.2} an hour; price unknown of {}", unknown.join(", ")),
        }
    }

    /// The same with its price an hour; `None`: it has one, which is not known.
    pub fn costing(mut self, usd_per_hour: Option<f64>) -> Self {
        self.usd_per_hour = usd_per_hour;
        self.bills = true;
        self
    }
}

/// What a user is shown when something did not work.
#[derive(Debug, Serialize)]
pub struct Failure {
    /// Decides the exit code.
    pub kind: Kind,
    /// The step that failed, if one did.
    pub step: Option<&'static str>,
    /// What failed, outermost first; each cause once.
    pub message: String,
    /// What exists now because of us.
    pub left: Vec<Resource>,
    /// What to type or do next.
    pub hints: Vec<String>,
    /// It was refused before anything was changed.
    #[serde(skip)]
    pub untouched: bool,
}

/// Attached to an error on its way up by who knows that nothing had been changed: `error.context(Untouched)`. It says nothing itself.
#[derive(Debug)]
pub struct Untouched;

impl fmt::Display for Untouched {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// A kind and hints attached to an error on its way up, by whoever knows them.
#[derive(Debug, Clone)]
pub struct Advice {
    kind: Kind,
    hints: Vec<String>,
    message: String,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Advice {}

/// An error of a known kind: `fail(Kind::Config, "…").hint("…")`.
pub fn fail(kind: Kind, message: impl Into<String>) -> Advice {
    Advice { kind, hints: Vec::new(), message: message.into() }
}

impl Advice {
    /// Adds what to type next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The kind it was made with.
    pub fn kind(&self) -> Kind {
        self.kind
    }
}

impl Failure {
    /// Makes the failure from an error chain: kind and hints from the outermost [`Advice`] or else the [`ServiceError`] within.
    pub fn of(step: Option<&'static str>, error: &anyhow::Error) -> Self {
        // `downcast_ref` finds what was attached as context; the items of `chain` would not show it.
        let advice = error.downcast_ref::<Advice>();
        let service = error.downcast_ref::<ServiceError>();
        let io = error.chain().any(|cause| cause.downcast_ref::<std::io::Error>().is_some());
        let kind = advice.map(Advice::kind).or(service.map(ServiceError::kind)).or(io.then_some(Kind::LocalIo));
        let mut hints = advice.map(|advice| advice.hints.clone()).unwrap_or_default();
        hints.extend(service.and_then(ServiceError::hint).map(str::to_owned));
        let untouched = error.downcast_ref::<Untouched>().is_some();
        Self { kind: kind.unwrap_or(Kind::Bug), step, message: words(error), left: Vec::new(), hints, untouched }
    }

    /// A failure of a known kind without an error chain.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, step: None, message: message.into(), left: Vec::new(), hints: Vec::new(), untouched: false }
    }

    /// Adds what to type next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }
}

/// The chain in one line; a cause whose words the line already has is not repeated.
fn words(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(&cause) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::of(None, &error)
    }
}

impl From<Advice> for Failure {
    fn from(advice: Advice) -> Self {
        Self::of(None, &anyhow::Error::new(advice))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.step {
            Some(step) => write!(f, "{step}: {}", self.message),
            None => f.write_str(&self.message),
        }
    }
}

impl std::error::Error for Failure {}

#[cfg(test)]
mod tests {
    use anyhow::Context;

    use super::*;

    fn service(code: &str, status: u16) -> ServiceError {
        ServiceError { service: "eks".into(), operation: "CreateCluster".into(), code: code.into(), message: "no".into(), request_id: Some("r-1".into()), status: Some(status) }
    }

    #[test]
    fn kind_comes_from_the_service_code() {
        for (code, status, kind) in [
            ("ExpiredTokenException", 400, Kind::Credentials),
            ("Whatever", 403, Kind::Credentials),
            ("NatGatewayLimitExceeded", 400, Kind::Capacity),
            ("ResourceInUseException", 409, Kind::Conflict),
            ("InternalFailure", 500, Kind::Remote),
        ] {
            assert_eq!(service(code, status).kind(), kind, "{code}");
        }
    }

    #[test]
    fn what_the_api_server_says_has_its_hint() {
        let said = |message: &str, code: &str, status| ServiceError { service: "kubernetes".into(), message: message.into(), ..service(code, status) };
        let going = said("deployments.apps \"frontend\" is forbidden: unable to create new content in namespace nemo because it is being terminated", "Forbidden", 403);
        assert_eq!(going.kind(), Kind::Conflict);
        assert!(going.hint().unwrap().contains("wait until the namespace is gone"));
        assert_eq!(said("deployments.apps is forbidden: User \"bob\" cannot patch", "Forbidden", 403).kind(), Kind::Credentials);
        let denied = said("admission webhook \"vdynamographdeployment.kb.io\" denied the request: spec.services: unknown", "Forbidden", 403);
        assert_eq!(denied.kind(), Kind::Config);
        assert!(denied.hint().unwrap().contains("a patch"));
        let silent = said("Internal error occurred: failed calling webhook \"vdynamographdeployment.kb.io\": connection refused", "InternalError", 500);
        assert!(silent.hint().unwrap().contains("nemo platform status"));
    }

    #[test]
    fn advice_wins_over_the_service_and_words_are_said_once() {
        let error = anyhow::Error::new(service("InternalFailure", 500)).context(fail(Kind::Timeout, "gave up").hint("try later"));
        let failure = Failure::of(Some("cluster"), &error);
        assert_eq!(failure.kind, Kind::Timeout);
        assert_eq!(failure.hints, ["try later"]);
        assert_eq!(failure.to_string(), "cluster: gave up: eks CreateCluster: InternalFailure: no (request r-1)");
        let refused = Failure::of(None, &anyhow::Error::new(fail(Kind::Config, "no").hint("do")).context(Untouched));
        assert_eq!((refused.message.as_str(), refused.kind, refused.untouched, failure.untouched), ("no", Kind::Config, true, false));
        let twice = Err::<(), _>(std::io::Error::other("disk")).context("writing: disk").unwrap_err();
        assert_eq!(Failure::of(None, &twice).message, "writing: disk");
    }
}
