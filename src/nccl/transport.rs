//! Which network NCCL took, as its log says (`NCCL_DEBUG=INFO`), and what that proves.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::explain::recognise;

/// What aws-ofi-nccl calls itself: the first up to 1.11, the second since.
const PLUGIN: [&str; 2] = ["AWS Libfabric", "Libfabric"];

/// What the log says of the network.
#[derive(Debug, Clone, Default, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Transport {
    /// By host name: what it said behind `Using network`.
    pub networks: BTreeMap<String, BTreeSet<String>>,
    /// libfabric's providers that the plug-in took: `efa`.
    pub providers: BTreeSet<String>,
    /// Nodes of the communicator.
    pub nodes: Option<u32>,
    /// Connections between nodes.
    pub channels: u64,
    /// Of those, with GPUDirect RDMA.
    pub gpudirect_channels: u64,
    /// Of those, over NCCL's own sockets.
    pub socket_channels: u64,
    /// The rule and the line that tell why, where somebody has told of such words.
    pub cause: Option<(String, String)>,
}

/// What stands against it, and the rule about that.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Objection {
    pub rule: String,
    pub what: String,
}

impl Transport {
    /// Reads the log of any number of ranks. A line without its end is not read.
    pub fn read(log: &str) -> Self {
        let lines = || log.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        let mut seen = Self::default();
        for line in lines() {
            let Some((host, said)) = line.split_once(" NCCL INFO ") else { continue };
            seen.line(host, said.trim_end());
        }
        seen.cause = recognise(lines().collect::<Vec<_>>()).map(|symptom| (symptom.rule.to_owned(), symptom.line));
        seen
    }

    fn line(&mut self, host: &str, said: &str) {
        if let Some(network) = said.strip_prefix("Using network ") {
            // `node-0:1358:1373 [1]`, and before it what a launcher may have put there.
            let host = host.split_whitespace().rev().find(|word| word.contains(':')).unwrap_or(host);
            self.networks.entry(host.split(':').next().unwrap_or(host).to_owned()).or_default().insert(network.trim().to_owned());
        } else if let Some(provider) = said.strip_prefix("NET/OFI Selected provider is ").or_else(|| said.strip_prefix("NET/OFI Selected Provider is ")) {
            self.providers.extend(provider.split([',', ' ', '*']).next().filter(|name| !name.is_empty()).map(str::to_owned));
        } else if let Some((_, nodes)) = said.split_once(" nNodes ") {
            let nodes = nodes.split_whitespace().next().and_then(|count| count.parse().ok());
            self.nodes = self.nodes.max(nodes);
        } else if said.starts_with("Channel ")
            && let Some((_, way)) = said.split_once(" via NET/")
        {
            self.channels += 1;
            self.gpudirect_channels += u64::from(way.split('/').any(|part| part == "GDRDMA" || part.starts_with("GDRDMA(")));
            self.socket_channels += u64::from(way.starts_with("Socket"));
        }
    }

    /// What stands against "the plug-in over EFA with GPUDirect" for a run over so many nodes; empty where the log proves it, and within one node, where NCCL names a network and does not
    /// use it.
    pub fn objections(&self, nodes: u32) -> Vec<Objection> {
        let mut found = Vec::new();
        if nodes < 2 {
            return found;
        }
        let others: Vec<String> = self
            .networks
            .iter()
            .filter_map(|(host, names)| {
                let others: Vec<&str> = names.iter().map(String::as_str).filter(|name| !PLUGIN.contains(name)).collect();
                (!others.is_empty()).then(|| format!("{} on {host}", others.join(" and ")))
            })
            .collect();
        if !others.is_empty() || self.socket_channels > 0 {
            let which = if others.is_empty() { format!("Socket for {} of {} connections", self.socket_channels, self.channels) } else { others.join(", ") };
            found.push(object("N27", format!("NCCL went by {which} instead of the plug-in over EFA: slow, without an error")));
        } else if self.networks.is_empty() && self.channels == 0 {
            found.push(object("N27", "the log does not say which network NCCL took (NCCL_DEBUG=INFO says it), so nothing is proven".to_owned()));
        }
        if let Some(joined) = self.nodes.filter(|joined| *joined < nodes) {
            found.push(object("N27", format!("{joined} of {nodes} nodes were in one communicator")));
        }
        if let Some(provider) = self.providers.iter().find(|provider| *provider != "efa") {
            found.push(object("N27", format!("the plug-in took libfabric's provider {provider}, which is not efa")));
        }
        if found.is_empty() && self.channels == 0 {
            found.push(object("N27", "no connection between nodes is in the log, so nothing went over the network".to_owned()));
        } else if found.is_empty() && self.gpudirect_channels < self.channels {
            let without = self.channels - self.gpudirect_channels;
            found.push(object(
                "N22",
                format!("{without} of {} connections between nodes are without GPUDirect RDMA: every byte takes a way through the memory of the host", self.channels),
            ));
        }
        if let Some((rule, line)) = self.cause.as_ref().filter(|_| !found.is_empty()) {
            found.push(Objection { rule: rule.clone(), what: format!("the log says: {line}") });
        }
        found
    }
}

fn object(rule: &str, what: String) -> Objection {
    Objection { rule: rule.to_owned(), what }
}
