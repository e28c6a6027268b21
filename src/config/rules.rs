//! What each setting allows: one table that checks values and is published in the JSON Schema.

use std::net::Ipv4Addr;

use regex::Regex;
use serde_json::{Value, json};

use super::lustre::sold_gib;

/// What a setting allows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Rule {
    /// Text that matches the whole pattern; the words are for the person who got it wrong.
    Text {
        pattern: &'static str,
        allowed: &'static str,
    },
    /// Of the deployment.
    Name,
    /// A Kubernetes namespace for the model's pods.
    Namespace,
    /// A private IPv4 network.
    Cidr,
    /// IPv4 networks with commas between, or nothing.
    Cidrs,
    /// Names of hosts with commas between, or nothing: no address, and no name that only a network's own resolver knows.
    PublicHosts,
    /// An HTTP address without a query.
    Url,
    Whole {
        min: i64,
        max: i64,
    },
    OneOf(&'static [i64]),
    /// GiB of an FSx for Lustre SSD file system (FSx guide: 1.2 TiB, 2.4 TiB, then multiples of 2.4 TiB), or 0.
    Capacity,
    Number {
        min: f64,
        max: f64,
    },
}

/// The cluster is called as the deployment, and stacks, repositories and node groups begin with it, so that the strictest rule of them all holds:
/// ECR's (lowercase, no two dashes together), a stack's (begins with a letter), and 63 characters for the longest derived label.
const NAME_PATTERN: &str = "[a-z](?:-?[a-z0-9])*";
const NAME_LONGEST: usize = 40;
const NAMESPACE_PATTERN: &str = "[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?";
/// Kubernetes' own namespaces, and those of the platform: this one is made, and taken away with what is in it.
const NAMESPACES_IN_USE: [&str; 7] = ["default", "kube-system", "kube-public", "kube-node-lease", "nemo-system", "lws-system", "dynamo-system"];
/// Each is a rule of a security group, which takes 60 (VPC quotas).
const CIDRS: usize = 30;
const CATALOGUE: Rule = Rule::Text { pattern: "[A-Za-z0-9._-]+", allowed: "the name of a catalogue file" };
const TEXT: Rule = Rule::Text { pattern: "[A-Za-z0-9._-]*", allowed: "a name" };
const PATH: Rule = Rule::Text { pattern: r"[^\x00-\x1f]*", allowed: "a path, or nothing" };
const TOPOLOGY: Rule = Rule::Text {
    pattern: "aggregated|pipeline-parallel|expert-parallel|disaggregated|e-pd|e-p-d",
    allowed: "aggregated, pipeline-parallel, expert-parallel, disaggregated, e-pd or e-p-d",
};
const FORM: Rule = Rule::Text { pattern: "auto|deployments|lws|dgd-v1alpha1|dgd-v1beta1|dgd-grove", allowed: "auto, deployments, lws, dgd-v1alpha1, dgd-v1beta1 or dgd-grove" };

/// The rule of a setting, by its key.
pub(super) fn rule(key: &str) -> Rule {
    match key {
        "name" => Rule::Name,
        "region" => Rule::Text { pattern: "|[a-z]{2,3}(?:-[a-z]+)+-[0-9]+", allowed: "a region such as us-east-2, or nothing" },
        "instance" | "system.instance" | "model" | "precision" | "compute" => CATALOGUE,
        "network.cidr" => Rule::Cidr,
        "system.nodes" => Rule::Whole { min: 1, max: 50 },
        "system.disk_gib" | "gpu.disk_gib" => Rule::Whole { min: 50, max: 16384 },
        "gpu.nodes" | "serve.replicas" => Rule::Whole { min: 1, max: 100 },
        "gpu.zone" => Rule::Text {
            pattern: "|[a-z]{2,4}[0-9]+-az[0-9]+",
            allowed: "a zone id such as use2-az1 (the same zone in every account; us-east-2a is a name, and differs), or nothing",
        },
        "storage.throughput" => Rule::OneOf(&[125, 250, 500, 1000]),
        "storage.capacity_gib" => Rule::Capacity,
        "hub.endpoint" => Rule::Url,
        "images.connections" => Rule::Whole { min: 1, max: 64 },
        "weights.workers" => Rule::Whole { min: 1, max: 64 },
        "weights.connections" => Rule::Whole { min: 1, max: 64 },
        "weights.stall_s" => Rule::Whole { min: 1, max: 3600 },
        "serve.namespace" => Rule::Namespace,
        "serve.topology" => TOPOLOGY,
        "serve.form" => FORM,
        "serve.nodes" | "serve.tensor_parallel_size" | "serve.decode_tensor_parallel_size" => Rule::Whole { min: 0, max: 64 },
        "serve.prefill" | "serve.decode" | "serve.encode" => Rule::Whole { min: 1, max: 100 },
        "serve.media_domains" => Rule::PublicHosts,
        "serve.expose" => Rule::Text { pattern: "no|internal|public", allowed: "no, internal or public" },
        "serve.allowed_cidrs" => Rule::Cidrs,
        "serve.tls_certificate" | "serve.tls_key" => Rule::Text { pattern: ".*", allowed: "the path of a PEM file, or nothing" },
        "serve.tls_secret" => Rule::Text { pattern: "|[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?", allowed: "the name of a Secret, or nothing" },
        "serve.max_model_len" => Rule::Whole { min: 0, max: 10_000_000 },
        "serve.gpu_memory_utilization" => Rule::Number { min: 0.1, max: 1.0 },
        "render.templates" | "render.patches" => PATH,
        "bench.concurrency" => Rule::Whole { min: 1, max: 100_000 },
        "bench.requests" | "bench.isl" | "bench.osl" => Rule::Whole { min: 1, max: 10_000_000 },
        "bench.seed" => Rule::Whole { min: 0, max: u32::MAX as i64 },
        "price.gpu_hour" => Rule::Number { min: 0.0, max: 1_000_000.0 },
        wait if wait.starts_with("wait.") && wait.ends_with(".every_ms") => Rule::Whole { min: 10, max: 600_000 },
        wait if wait.starts_with("wait.") => Rule::Whole { min: 1, max: 604_800 },
        _ => TEXT,
    }
}

impl Rule {
    /// What is allowed, in words that follow "must be".
    pub(super) fn allowed(self) -> String {
        match self {
            Self::Text { allowed, .. } => allowed.into(),
            Self::Name => format!(
                "lowercase letters, digits and single dashes, beginning with a letter and ending with a letter or digit, at most {NAME_LONGEST} characters \
                 (EKS clusters, CloudFormation stacks and ECR repositories are called by it)"
            ),
            Self::Namespace => {
                format!("a Kubernetes namespace of its own: lowercase letters, digits and dashes, at most 63 characters, and none of {}", NAMESPACES_IN_USE.join(", "))
            }
            Self::Cidr => "a private IPv4 network of /16 to /20 such as 10.180.0.0/16, outside 172.17.0.0/16 (which nodes use themselves)".into(),
            Self::Cidrs => format!(
                "at most {CIDRS} IPv4 networks with commas between, such as 203.0.113.0/24,198.51.100.7/32 (each without bits behind its length; a load balancer's security \
                 group has no room for more), or nothing"
            ),
            Self::PublicHosts => {
                "hosts by their public names with commas between, such as images.example.com, or nothing; no address and no internal name: those lead to the instance metadata \
                 and to what is in the VPC"
                    .into()
            }
            Self::Url => "an address such as https://huggingface.co".into(),
            Self::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Self::OneOf(values) => format!("one of {}", values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
            Self::Capacity => "0, 1200, 2400 or a multiple of 2400 (FSx for Lustre, SSD)".into(),
            Self::Number { min, max } => format!("a number from {min} to {max}"),
        }
    }

    /// Is this value allowed?
    pub(super) fn takes(self, value: &toml::Value) -> bool {
        match (self, value) {
            (Self::Text { pattern, .. }, toml::Value::String(text)) => matches_whole(pattern, text),
            (Self::Name, toml::Value::String(text)) => text.len() <= NAME_LONGEST && matches_whole(NAME_PATTERN, text),
            (Self::Namespace, toml::Value::String(text)) => matches_whole(NAMESPACE_PATTERN, text) && !NAMESPACES_IN_USE.contains(&text.as_str()),
            (Self::Cidr, toml::Value::String(text)) => private_network(text),
            (Self::Cidrs, toml::Value::String(text)) => text.is_empty() || text.split(',').count() <= CIDRS && text.split(',').all(is_network),
            (Self::PublicHosts, toml::Value::String(text)) => text.is_empty() || text.split(',').all(is_public_name),
            (Self::Url, toml::Value::String(text)) => reqwest::Url::parse(text)
                .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none() && url.username().is_empty() && url.password().is_none()),
            (Self::Whole { min, max }, toml::Value::Integer(number)) => (min..=max).contains(number),
            (Self::OneOf(values), toml::Value::Integer(number)) => values.contains(number),
            (Self::Capacity, toml::Value::Integer(gib)) => *gib == 0 || u64::try_from(*gib).is_ok_and(|gib| gib <= u64::from(u32::MAX) && sold_gib(gib) == gib),
            (Self::Number { min, max }, toml::Value::Float(number)) => (min..=max).contains(number),
            _ => false,
        }
    }

    /// The same as JSON Schema keywords.
    pub(super) fn schema(self) -> Value {
        match self {
            Self::Text { pattern, .. } => json!({"type": "string", "pattern": format!("^(?:{pattern})$")}),
            Self::Name => json!({"type": "string", "pattern": format!("^{NAME_PATTERN}$"), "maxLength": NAME_LONGEST}),
            Self::Namespace => json!({"type": "string", "pattern": format!("^(?:{NAMESPACE_PATTERN})$"), "not": {"enum": NAMESPACES_IN_USE}}),
            Self::Cidr => json!({"type": "string", "pattern": "^[0-9.]+/(?:1[6-9]|20)$"}),
            Self::Cidrs => json!({"type": "string", "pattern": "^(?:|[0-9./]+(?:,[0-9./]+)*)$"}),
            Self::PublicHosts => json!({"type": "string", "pattern": "^(?:|[a-z0-9.-]+(?:,[a-z0-9.-]+)*)$"}),
            Self::Url => json!({"type": "string", "format": "uri"}),
            Self::Whole { min, max } => json!({"type": "integer", "minimum": min, "maximum": max}),
            Self::OneOf(values) => json!({"type": "integer", "enum": values}),
            Self::Capacity => json!({"type": "integer", "anyOf": [{"const": 0}, {"const": 1200}, {"minimum": 2400, "multipleOf": 2400}]}),
            Self::Number { min, max } => json!({"type": "number", "minimum": min, "maximum": max}),
        }
    }
}

fn matches_whole(pattern: &str, text: &str) -> bool {
    Regex::new(&format!("^(?:{pattern})$")).is_ok_and(|pattern| pattern.is_match(text))
}

/// A VPC takes /16 to /28; below /20 the subnets would be too small for EFA nodes. Nodes' own bridge is 172.17.0.0/16 (EKS guide, network requirements).
fn private_network(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(length)) = (address.parse::<Ipv4Addr>(), length.parse::<u32>()) else { return false };
    let private = address.is_private() || matches!(address.octets(), [100, 64..=127, ..]);
    private && (16..=20).contains(&length) && u32::from(address) << length == 0 && address.octets()[..2] != [172, 17]
}

/// `203.0.113.0/24`; without bits behind its length, which say that another network is meant.
fn is_network(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let (Ok(address), Ok(length)) = (address.parse::<Ipv4Addr>(), length.parse::<u32>()) else { return false };
    // `/08` is eight to some and no number to others.
    length <= 32 && text.ends_with(&format!("/{length}")) && u32::from(address).checked_shl(length).unwrap_or(0) == 0
}

/// Last labels that are no public domain: what only a cluster, a VPC or a private network resolves.
const PRIVATE: [&str; 14] = ["internal", "local", "localhost", "svc", "cluster", "arpa", "default", "lan", "home", "corp", "private", "intranet", "test", "invalid"];

/// A name of two labels or more whose last can be a public domain: letters, or letters beyond ASCII as `xn--…`. An address has no such label, and
/// neither `localhost` nor `metadata` has two.
fn is_public_name(name: &str) -> bool {
    let private = name.rsplit('.').next().is_some_and(|last| PRIVATE.contains(&last));
    !private && matches_whole(r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+(?:[a-z]{2,}|xn--[a-z0-9-]*[a-z0-9])", name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::config::topology::{Form, Topology};

    fn text(value: &str) -> toml::Value {
        toml::Value::String(value.into())
    }

    #[test]
    fn names_that_aws_would_refuse_are_refused() {
        for name in ["nemo", "a", "nemo-2", "n3", &"a".repeat(40)] {
            assert!(rule("name").takes(&text(name)), "{name}");
        }
        for name in ["", "Nemo", "2nemo", "-nemo", "nemo-", "ne--mo", "ne_mo", "ne.mo", "nemo/x", "némo", "nemo\n", &"a".repeat(41), &format!("a{}", "-a".repeat(20))] {
            assert!(!rule("name").takes(&text(name)), "{name}");
        }
    }

    #[test]
    fn a_namespace_that_is_in_use_is_refused() {
        for (name, ok) in [("nemo", true), ("kube", true), ("kube-system", false), ("default", false), ("kube-public", false), ("kube-node-lease", false), ("Nemo", false)] {
            assert_eq!(rule("serve.namespace").takes(&text(name)), ok, "{name}");
        }
        let platform: toml::Table = toml::from_str(include_str!("../../configs/platform.toml")).unwrap();
        let charts: Vec<_> =
            platform["sets"].as_table().unwrap().values().flat_map(|set| set["charts"].as_table().unwrap().values()).map(|chart| chart["namespace"].clone()).collect();
        assert!(!charts.is_empty() && charts.iter().all(|namespace| !rule("serve.namespace").takes(namespace)), "{charts:?}");
    }

    #[test]
    fn networks() {
        for cidr in ["10.180.0.0/16", "10.0.0.0/20", "192.168.0.0/16", "172.31.0.0/16", "100.64.0.0/16"] {
            assert!(rule("network.cidr").takes(&text(cidr)), "{cidr}");
        }
        for cidr in ["10.180.0.1/16", "10.180.0.0", "10.180.0.0/8", "10.180.0.0/24", "8.8.0.0/16", "172.17.0.0/16", "10.180.0/16", "::/16", "10.180.0.0/x"] {
            assert!(!rule("network.cidr").takes(&text(cidr)), "{cidr}");
        }
    }

    #[test]
    fn networks_that_may_connect() {
        for cidrs in ["", "0.0.0.0/0", "203.0.113.0/24", "203.0.113.7/32,10.0.0.0/8"] {
            assert!(rule("serve.allowed_cidrs").takes(&text(cidrs)), "{cidrs}");
        }
        for cidrs in
            ["203.0.113.7/24", "203.0.113.7", "any", "10.0.0.0/8,", "10.0.0.0/8, 10.1.0.0/16", "::/0", "10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/+8", &["10.0.0.0/8"; 31].join(",")]
        {
            assert!(!rule("serve.allowed_cidrs").takes(&text(cidrs)), "{cidrs}");
        }
    }

    /// Whoever may send a picture's address may not make the engine ask for the node's credentials.
    #[test]
    fn no_media_host_is_the_metadata_address() {
        for hosts in ["", "images.example.com", "a.example.com,b.example.com", "s3.us-east-2.amazonaws.com", "bilder.xn--p1ai"] {
            assert!(rule("serve.media_domains").takes(&text(hosts)), "{hosts}");
        }
        for hosts in [
            "169.254.169.254",
            "2852039166",
            "0xa9fea9fe",
            "0xa9.0xfe.0xa9.0xfe",
            "[fd00:ec2::254]",
            "localhost",
            "instance-data",
            "instance-data.ec2.internal",
            "metadata.google.internal",
            "ip-10-0-0-1.us-east-2.compute.internal",
            "frontend.nemo.svc.cluster.local",
            "frontend.nemo.svc",
            "kubernetes.default",
            "frontend.dynamo-system",
            "frontend.kube-system",
            "files.corp",
            "nas.home.lan",
            "a.b1",
            "a.example.com,169.254.169.254",
            "*.example.com",
            "example.com.",
            "a..com",
        ] {
            assert!(!rule("serve.media_domains").takes(&text(hosts)), "{hosts}");
        }
    }

    #[test]
    fn topologies_and_forms_are_those_of_the_table() {
        for name in Topology::ALL.map(Topology::name) {
            assert!(rule("serve.topology").takes(&text(name)), "{name}");
        }
        for name in Form::ALL.map(Form::name).iter().chain(&["auto"]) {
            assert!(rule("serve.form").takes(&text(name)), "{name}");
        }
        assert!(!rule("serve.topology").takes(&text("")) && !rule("serve.form").takes(&text("dgd")));
    }

    #[test]
    fn capacities_and_addresses() {
        for (gib, ok) in [(0, true), (1200, true), (2400, true), (4800, true), (3600, false), (-2400, false), (1, false)] {
            assert_eq!(rule("storage.capacity_gib").takes(&toml::Value::Integer(gib)), ok, "{gib}");
        }
        for (url, ok) in [("https://huggingface.co", true), ("http://hub:18090", true), ("huggingface.co", false), ("ftp://x", false), ("https://u:p@x", false)] {
            assert_eq!(rule("hub.endpoint").takes(&text(url)), ok, "{url}");
        }
    }

    proptest! {
        /// Every name that is let through fits what AWS takes: EKS, CloudFormation, ECR (its own pattern), and labels of 63 characters.
        #[test]
        fn what_is_let_through_fits_aws(name in "[a-zA-Z0-9._-]{0,45}") {
            if rule("name").takes(&text(&name)) {
                let ecr = Regex::new("^[a-z0-9]+(?:[._-][a-z0-9]+)*$").unwrap();
                prop_assert!(ecr.is_match(&name));
                let (stack, label) = (format!("{name}-gpu-nodes"), format!("{name}-aws-fsx-csi-driver"));
                prop_assert!(Regex::new("^[a-zA-Z][-a-zA-Z0-9]*$").unwrap().is_match(&stack));
                prop_assert!(label.len() <= 63);
            }
        }
    }
}
