//! The gateway of the step `serve`, where the model is exposed: its Secrets, its pods and its load balancer. Its manifests are among the step's.

use std::io::Read;

use anyhow::Context as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{Pod, Secret as Kept};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};
use serde_json::json;

use super::Deps;
use super::certificate::Pair;
use super::facts::{Exposed, ImagesFacts, Stored};
use super::objects::{Objects, look, seen, steady};
use crate::config::Expose;
use crate::engine::step::{Cx, Seen, StepId};
use crate::engine::wait::Look;
use crate::error::{Advice, Kind, Resource, fail};
use crate::k8s::apply::{KindOf, Live};
use crate::k8s::ready::{self, Readiness};
use crate::k8s::{self, Answer, Balancer, Document, LABEL_KEPT};
use crate::render::{self, GATEWAY, KEY_SECRET, Rendered, Serving, TLS_SECRET};
use crate::secret::Secret;

/// The part of `images` that its pods run.
pub const IMAGE: &str = "gateway";
const SECRETS: &[KindOf] = &[KindOf::new("", "v1", "Secret")];
const SCHEME: &str = "service.beta.kubernetes.io/aws-load-balancer-scheme";
/// Shorter keys can be guessed.
const SHORTEST: usize = 20;
/// nginx reads no word of its configuration beyond 4,096 bytes, and the key stands in a pattern of `map`; 3,000 was tried.
const LONGEST: usize = 3000;
const TLS: &str = "kubernetes.io/tls";

/// What the user gave for the gateway; nothing of it is noted anywhere but in the cluster's Secrets.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// `NEMO_API_KEY`; without it one is made.
    pub key: Option<Secret>,
    /// Certificate with its chain and key; or why they cannot be used.
    pub certificate: Option<Result<Pair, String>>,
}

impl Given {
    /// The key as it may be used: characters that a header can carry without quotes, and enough of them. It is never shown.
    pub fn checked(key: &str) -> anyhow::Result<Secret> {
        let key = key.trim();
        let fits = |letter: char| letter.is_ascii_alphanumeric() || "-._~+/=".contains(letter);
        if !(SHORTEST..=LONGEST).contains(&key.len()) || !key.chars().all(fits) {
            let why = format!("the API key must have {SHORTEST} to {LONGEST} characters (nginx takes no longer ones), all of them letters, digits or one of -._~+/=");
            return Err(fail(Kind::Credentials, why).hint("look at NEMO_API_KEY or the file in NEMO_API_KEY_FILE; without either, nemo makes one").into());
        }
        Ok(Secret::new(key))
    }

    /// Refuses a certificate or key that cannot be used, also where an earlier one serves: whoever names another wants that one.
    pub fn usable(&self) -> anyhow::Result<()> {
        match &self.certificate {
            Some(Err(why)) => Err(unusable(why).into()),
            _ => Ok(()),
        }
    }
}

/// The gateway before one frontend.
pub(super) struct Gateway<'a> {
    deps: &'a Deps,
    namespace: &'a str,
}

impl<'a> Gateway<'a> {
    pub(super) fn new(deps: &'a Deps) -> Self {
        Self { deps, namespace: &deps.spec.serve.namespace }
    }

    fn secrets(&self) -> Objects<'_> {
        Objects { deps: self.deps, step: StepId::Serve, kinds: SECRETS }
    }

    /// What its manifests are made from, if there is a gateway.
    pub(super) fn values(&self, serving: &Serving, images: &ImagesFacts) -> anyhow::Result<Option<render::Gateway>> {
        if !self.deps.spec.exposed() {
            return Ok(None);
        }
        if let Some(why) = self.lacks(images) {
            let expose = if self.deps.spec.serve.expose == Expose::Public { "public" } else { "internal" };
            return Err(fail(Kind::Usage, why).hint(format!("nemo image push --expose {expose}, with the other settings of this command")).into());
        }
        let image = images.stored.get(IMAGE).map(Stored::pinned).unwrap_or_default();
        Ok(Some(render::Gateway::new(&self.deps.spec, serving, image)))
    }

    /// The deployment may have been without a gateway when its images were copied.
    pub(super) fn lacks(&self, images: &ImagesFacts) -> Option<String> {
        let lacks = self.deps.spec.exposed() && !images.stored.contains_key(IMAGE);
        lacks.then(|| format!("the image {IMAGE} is not in ECR yet"))
    }

    fn document(&self, name: &str, kind: &str, data: &[(&str, &str)]) -> anyhow::Result<Document> {
        // `data`, not `stringData`: the API server keeps only the first, and what is not kept looks as if somebody had taken it away.
        let data: serde_json::Map<_, _> = data.iter().map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value).into())).collect();
        let manifest = json!({"apiVersion": "v1", "kind": "Secret", "type": kind, "data": data,
            "metadata": {"name": name, "namespace": self.namespace, "labels": {LABEL_KEPT: GATEWAY}}});
        let rendered = Rendered { file: "gateway.yaml", text: String::new(), manifests: vec![manifest], overlays: Vec::new() };
        self.secrets().documents(vec![rendered])?.pop().context("one manifest is one document")
    }

    fn key_document(&self, key: &Secret) -> anyhow::Result<Document> {
        let map = render::key_map(key.reveal());
        self.document(KEY_SECRET, "Opaque", &[("key", key.reveal()), ("keys.conf", map.as_str())])
    }

    /// The Secrets as far as the user gave what is in them.
    fn documents(&self) -> anyhow::Result<Vec<Document>> {
        let given = &self.deps.gateway;
        let mut documents = Vec::new();
        if let Some(key) = &given.key {
            documents.push(self.key_document(key)?);
        }
        if let Some(Ok(pair)) = &given.certificate {
            documents.push(self.document(TLS_SECRET, TLS, &[("tls.crt", pair.certificate.as_str()), ("tls.key", pair.key.reveal())])?);
        }
        Ok(documents)
    }

    /// The name of the Secret with the certificate, and is it ours to make?
    fn tls(&self) -> (&str, bool) {
        let named = self.deps.spec.serve.tls_secret.as_str();
        if named.is_empty() { (TLS_SECRET, true) } else { (named, false) }
    }

    /// Is a Secret of this type there? Only asked whether, so that what it holds stays where it is.
    async fn has(&self, client: &kube::Client, name: &str, kind: &str) -> anyhow::Result<bool> {
        let api: Api<Kept> = Api::namespaced(client.clone(), self.namespace);
        let list = ListParams::default().fields(&format!("metadata.name={name},type={kind}"));
        Ok(!api.list_metadata(&list).await.answer("LIST secrets")?.items.is_empty())
    }

    /// Our Secrets that are there, by their names.
    pub(super) async fn kept(&self, client: &kube::Client) -> anyhow::Result<Vec<String>> {
        let api: Api<Kept> = Api::namespaced(client.clone(), self.namespace);
        let list = ListParams::default().labels(&format!("{},{LABEL_KEPT}={GATEWAY}", self.secrets().owner().selector()));
        Ok(api.list_metadata(&list).await.answer("LIST secrets")?.items.iter().map(ResourceExt::name_any).collect())
    }

    /// What keeps the gateway from being as wanted, or where it is; `None` where there is none and none is wanted.
    pub(super) async fn look(&self, client: &kube::Client, way_in: Option<Exposed>) -> anyhow::Result<Result<Option<Exposed>, Seen>> {
        let Some(way_in) = way_in else {
            let kept = self.kept(client).await?;
            return Ok(kept.first().map_or(Ok(None), |name| Err(Seen::Broken { why: format!("Secret {}/{name} is there, and there is no gateway", self.namespace) })));
        };
        let documents = self.documents()?;
        let standing = k8s::apply::look(client, &documents).await?;
        if let Some(seen) = documents.first().and_then(|_| seen(&documents, &standing)) {
            return Ok(Err(if seen == Seen::Absent { Seen::Pending { what: "the gateway's Secrets are missing".into() } } else { seen }));
        }
        for (name, kind) in [(KEY_SECRET, "Opaque"), (self.tls().0, TLS)] {
            if !self.has(client, name, kind).await? {
                return Ok(Err(Seen::Pending { what: format!("Secret {}/{name} is missing", self.namespace) }));
            }
        }
        Ok(match ready::deployment(client, self.namespace, GATEWAY).await? {
            Readiness::Failed(why) => Err(Seen::Broken { why: format!("{GATEWAY}: {why}") }),
            Readiness::Waiting(what) => Err(Seen::Pending { what: format!("{GATEWAY}: {what}") }),
            Readiness::Absent => Err(Seen::Pending { what: format!("{GATEWAY} is being made") }),
            Readiness::Ready => match k8s::balancer(client, self.namespace, GATEWAY).await? {
                Balancer::At(host) => Ok(Some(Exposed { host, ..way_in })),
                Balancer::Waiting(why) => Err(Seen::Pending { what: waiting(why) }),
            },
        })
    }

    /// Writes the Secrets that are not there or not as given, before there are pods that mount them; pods that run with others are made anew.
    pub(super) async fn write_secrets(&self, cx: &Cx, client: &kube::Client, wanted: bool) -> anyhow::Result<()> {
        if !wanted {
            let api: Api<Kept> = Api::namespaced(client.clone(), self.namespace);
            for name in self.kept(client).await? {
                api.delete(&name, &DeleteParams::default()).await.or_none(&format!("DELETE secrets/{name}"))?;
            }
            return Ok(());
        }
        let (tls, ours) = self.tls();
        match &self.deps.gateway.certificate {
            Some(Err(why)) if ours => return Err(unusable(why).into()),
            Some(Ok(_)) if ours => {}
            _ if self.has(client, tls, TLS).await? => {}
            _ => {
                let why = format!("there is no Secret {}/{tls} of type {TLS}", self.namespace);
                return Err(fail(Kind::Config, why).hint(format!("{}, then the same command again", self.create_tls(tls))).into());
            }
        }
        let mut documents = self.documents()?;
        if self.deps.gateway.key.is_none() && !self.has(client, KEY_SECRET, "Opaque").await? {
            documents.push(self.key_document(&random_key()?)?);
            cx.note(format!("an API key was made: it is in Secret {}/{KEY_SECRET} and nowhere else", self.namespace));
        }
        let changed = k8s::apply::look(client, &documents).await?.iter().any(|live| matches!(live, Live::Differs | Live::Changed(_)));
        self.secrets().apply(cx, client, &documents, self.deps.spec.wait.rollout).await?;
        if changed { self.renew_pods(cx, client).await } else { Ok(()) }
    }

    fn create_tls(&self, name: &str) -> String {
        format!("kubectl create secret tls {name} --namespace {} --cert tls.crt --key tls.key", self.namespace)
    }

    /// What the set of this revision would wait for in vain: Secrets that went when it was left, and that nobody gives anew. No other API key is
    /// made: clients have the old one.
    pub(super) async fn missing(&self, client: &kube::Client, revision: u32) -> anyhow::Result<Option<Seen>> {
        let (tls, ours) = self.tls();
        let (mut missing, mut first, mut command) = (Vec::new(), String::new(), format!("nemo rollback --to {revision}"));
        if !self.has(client, tls, TLS).await? {
            match &self.deps.gateway.certificate {
                Some(Ok(_)) if ours => {}
                certificate => {
                    let why = if let Some(Err(why)) = certificate { format!(" ({why})") } else { String::new() };
                    missing.push(format!("{}/{tls} with the certificate{why}", self.namespace));
                    if ours {
                        command.push_str(" --set serve.tls_certificate=tls.crt --set serve.tls_key=tls.key");
                    } else {
                        first = format!("{}; ", self.create_tls(tls));
                    }
                }
            }
        }
        if self.deps.gateway.key.is_none() && !self.has(client, KEY_SECRET, "Opaque").await? {
            missing.push(format!("{}/{KEY_SECRET} with the API key", self.namespace));
            command = format!("NEMO_API_KEY_FILE=key.txt {command} (key.txt holds the key that clients have, or a new one: openssl rand -hex 32 > key.txt)");
        }
        let why = format!("revision {revision} has a gateway, and there is no Secret {}", missing.join(" and no Secret "));
        Ok((!missing.is_empty()).then(|| Seen::Impossible { why, hint: format!("{first}{command}") }))
    }

    /// They read key and certificate once. Those that come are there before those that go have ended.
    async fn renew_pods(&self, cx: &Cx, client: &kube::Client) -> anyhow::Result<()> {
        cx.note("key or certificate is another: the gateway's pods are made anew");
        let pods: Api<Pod> = Api::namespaced(client.clone(), self.namespace);
        let of = ListParams::default().labels(&format!("app.kubernetes.io/name={GATEWAY}"));
        let uids = async || -> anyhow::Result<Vec<String>> { Ok(pods.list_metadata(&of).await.answer("LIST pods")?.items.iter().filter_map(ResourceExt::uid).collect()) };
        let old = uids().await?;
        pods.delete_collection(&DeleteParams::default(), &of).await.answer("DELETE pods")?;
        cx.until("pods with the old key to end", self.deps.spec.wait.rollout, || {
            steady(async {
                let left = uids().await?.iter().filter(|uid| old.contains(uid)).count();
                Ok(if left == 0 { Look::Ready(()) } else { Look::NotYet(format!("{left} still answer")) })
            })
        })
        .await
    }

    /// Waits for its pods and for the load balancer's name.
    pub(super) async fn ready(&self, cx: &Cx, client: &kube::Client, way_in: Option<Exposed>) -> anyhow::Result<Option<Exposed>> {
        let Some(way_in) = way_in else { return Ok(None) };
        let wait = self.deps.spec.wait.rollout;
        cx.until(GATEWAY, wait, || steady(async { look(GATEWAY, ready::deployment(client, self.namespace, GATEWAY).await?) })).await?;
        let host = cx
            .until("the load balancer", wait, || {
                steady(async {
                    Ok(match k8s::balancer(client, self.namespace, GATEWAY).await? {
                        Balancer::At(host) => Look::Ready(host),
                        Balancer::Waiting(why) => Look::NotYet(waiting(why)),
                    })
                })
            })
            .await?;
        Ok(Some(Exposed { host, ..way_in }))
    }

    /// For the plan: what AWS asks money for.
    pub(super) fn makes(&self) -> Option<Resource> {
        self.deps.spec.exposed().then(|| self.priced(Resource::new("Service", self.balanced())))
    }

    fn balanced(&self) -> String {
        format!("{}/{GATEWAY}", self.namespace)
    }

    /// The gateway's Service is a load balancer; its traffic (LCU) is not in the price.
    pub(super) fn priced(&self, found: Resource) -> Resource {
        if (found.what.as_str(), &found.id) != ("Service", &self.balanced()) {
            return found;
        }
        let price = self.deps.pins.prices.load_balancer_hour;
        Resource::new("Service (Network Load Balancer)", found.id).costing((price > 0.0).then_some(price))
    }
}

/// What of these manifests leads in from outside the cluster; where that is, the cluster says. By the manifests, since a set that is gone back to has its own.
pub(super) fn way_in(rendered: &[Rendered]) -> Option<Exposed> {
    let is = |manifest: &&render::Manifest| manifest["kind"] == "Service" && manifest["metadata"]["name"] == GATEWAY;
    let service = rendered.iter().flat_map(|file| &file.manifests).find(is)?;
    let public = service["metadata"]["annotations"][SCHEME] == "internet-facing";
    let cidrs = service["spec"]["loadBalancerSourceRanges"].as_array().into_iter().flatten().filter_map(|range| range.as_str().map(str::to_owned)).collect();
    Some(Exposed { to: if public { Expose::Public } else { Expose::Internal }, host: String::new(), cidrs })
}

fn unusable(why: &str) -> Advice {
    let hint = format!(
        "set serve.tls_certificate and serve.tls_key to a pair that can be used; to stay with the one that serves: --set serve.tls_certificate= --set serve.tls_key= --set serve.tls_secret={TLS_SECRET}"
    );
    fail(Kind::Config, why).hint(hint)
}

fn waiting(why: Option<String>) -> String {
    why.unwrap_or_else(|| "the load balancer has no name yet".into())
}

/// 256 bits of the system's, as hex digits.
fn random_key() -> anyhow::Result<Secret> {
    let mut bytes = [0; 32];
    std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut bytes)).context("reading /dev/urandom")?;
    Ok(Secret::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_could_be_guessed_or_end_the_quotes_are_refused_unseen() {
        for key in ["sk-0123456789abcdef0", "  0123456789abcdef0123456789abcdef\n", &"0123456789".repeat(300)] {
            assert!(Given::checked(key).is_ok(), "{key}");
        }
        for key in ["", "short", &"0123456789".repeat(301), "0123456789abcdef\"0123", "0123456789abcdef\\E0123", "0123456789 abcdef01234", "0123456789abcdef$0123"] {
            let error = Given::checked(key).unwrap_err();
            assert!(!format!("{error:?}").contains("0123456789"), "{error:?}");
        }
    }

    #[test]
    fn made_keys_are_long_and_differ() {
        let (one, other) = (random_key().unwrap(), random_key().unwrap());
        assert_ne!(one, other);
        assert!(one.reveal().len() == 64 && Given::checked(one.reveal()).is_ok());
    }
}
