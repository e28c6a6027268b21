//! What is fetched: written by the step, read by every worker.

use std::path::{Component, Path};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::error::{Kind, fail};

/// Files of one commit of a model repository, and how they are fetched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FetchPlan {
    /// Of the hub.
    pub endpoint: String,
    pub repository: String,
    /// 40 hex digits.
    pub revision: String,
    /// Below the volume's root.
    pub folder: String,
    /// Pods that share the work.
    pub workers: u32,
    /// At once in each pod.
    pub connections: u32,
    /// Seconds without a byte until a connection is dropped.
    pub stall_s: u64,
    /// Bytes of one request.
    #[serde(default = "piece")]
    pub piece: u64,
    pub read_back: ReadBack,
    pub files: Vec<PlanFile>,
}

/// How the read rate is measured once every file is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadBack {
    /// That read at once, as the ranks of an engine do.
    pub streams: u32,
    /// A largest file with fewer bytes says more about caches than about the volume: nothing is measured.
    pub at_least: u64,
    /// Bytes that are read.
    pub at_most: u64,
}

impl ReadBack {
    /// So much that it takes seconds on any file system that weights are served from.
    pub fn by(streams: u32) -> Self {
        Self { streams, at_least: 1_000_000_000, at_most: 8_000_000_000 }
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlanFile {
    pub path: String,
    pub size: u64,
    /// Of a large file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Of a small one: git's own hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_blob: Option<String>,
}

fn piece() -> u64 {
    FetchPlan::PIECE
}

impl PlanFile {
    /// The hash that it is known by.
    pub fn hash(&self) -> &str {
        self.sha256.as_deref().or(self.git_blob.as_deref()).unwrap_or_default()
    }
}

impl FetchPlan {
    /// Bytes that one request asks for. Progress is noted by the piece.
    pub const PIECE: u64 = 32 << 20;

    /// Reads and checks a plan.
    pub fn read(file: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        let plan: Self = serde_json::from_str(&text).map_err(|e| fail(Kind::Config, format!("{}, line {}: not a plan of files: {e}", file.display(), e.line())))?;
        plan.check()?;
        Ok(plan)
    }

    /// Names come from a hub: none may leave the folder, and each file needs a hash.
    pub fn check(&self) -> anyhow::Result<()> {
        let inside = |path: &str| !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        let wrong = |why: String| Err(fail(Kind::Config, why).into());
        if !inside(&self.folder) || self.piece == 0 {
            return wrong(format!("{:?} is no folder below the volume", self.folder));
        }
        for file in &self.files {
            if !inside(&file.path) {
                return wrong(format!("the repository {} lists a file {:?}, which would lie outside its folder", self.repository, file.path));
            }
            if file.hash().is_empty() {
                return wrong(format!("the repository {} lists {:?} without a hash", self.repository, file.path));
            }
        }
        Ok(())
    }

    /// The files of one worker: the largest first, each to whoever has least. All workers come to the same shares.
    pub fn share(&self, index: u32) -> anyhow::Result<Vec<&PlanFile>> {
        let workers = self.workers.max(1) as usize;
        if index as usize >= workers {
            return Err(fail(Kind::Config, format!("worker {index} of {workers}")).into());
        }
        let mut files: Vec<&PlanFile> = self.files.iter().collect();
        files.sort_by(|a, b| b.size.cmp(&a.size).then_with(|| a.path.cmp(&b.path)));
        let mut shares: Vec<(u64, Vec<&PlanFile>)> = vec![(0, Vec::new()); workers];
        for file in files {
            if let Some((load, share)) = shares.iter_mut().min_by_key(|(load, _)| *load) {
                *load += file.size;
                share.push(file);
            }
        }
        Ok(shares.swap_remove(index as usize).1)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(sizes: &[u64], workers: u32) -> FetchPlan {
        let files = sizes.iter().enumerate().map(|(n, size)| PlanFile { path: format!("f{n}"), size: *size, sha256: Some("x".into()), git_blob: None }).collect();
        FetchPlan {
            endpoint: "http://h".into(),
            repository: "o/r".into(),
            revision: "0".repeat(40),
            folder: "models/o/r".into(),
            workers,
            connections: 1,
            stall_s: 1,
            piece: FetchPlan::PIECE,
            read_back: ReadBack::by(8),
            files,
        }
    }

    proptest! {
        #[test]
        fn every_file_has_one_worker_and_no_worker_much_more_than_its_part(sizes in proptest::collection::vec(0_u64..1000, 0..40), workers in 1_u32..6) {
            let plan = plan(&sizes, workers);
            let shares: Vec<_> = (0..workers).map(|index| plan.share(index).unwrap()).collect();
            let mut paths: Vec<_> = shares.iter().flatten().map(|file| file.path.clone()).collect();
            paths.sort();
            paths.dedup();
            prop_assert_eq!(paths.len(), sizes.len());
            let most: u64 = shares.iter().map(|share| share.iter().map(|file| file.size).sum::<u64>()).max().unwrap();
            let total: u64 = sizes.iter().sum();
            prop_assert!(most <= total / u64::from(workers) + sizes.iter().max().unwrap_or(&0));
        }
    }

    #[test]
    fn a_name_that_leaves_the_folder_is_refused() {
        for path in ["../x", "/etc/passwd", "a/../../x", ""] {
            let mut plan = plan(&[1], 1);
            plan.files[0].path = path.into();
            assert!(plan.check().unwrap_err().to_string().contains("outside"), "{path}");
        }
        let mut plan = plan(&[1], 1);
        plan.files[0].sha256 = None;
        assert!(plan.check().unwrap_err().to_string().contains("without a hash"));
    }
}
