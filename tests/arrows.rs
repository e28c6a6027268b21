//! The arrows between modules point one way; ARCHITECTURE.md draws them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Which modules each module may name. A module that is not here may name nothing of the crate.
const ARROWS: &[(&str, &[&str])] = &[
    ("agent", &["bench", "error", "engine", "hub", "node", "secret"]),
    ("aws", &["error", "secret"]),
    ("bench", &["error"]),
    ("check", &["aws", "config", "engine", "error", "fit", "hub", "registry", "secret", "steps"]),
    (
        "cli",
        &[
            "agent", "aws", "bench", "check", "compare", "config", "endpoint", "engine", "error", "explain", "fit", "hub", "k8s", "lint", "nccl", "proof", "registry", "render",
            "report", "secret", "slo", "steps", "ui",
        ],
    ),
    ("compare", &["bench", "error"]),
    ("config", &["engine", "error"]),
    ("endpoint", &["error", "secret"]),
    ("engine", &["error"]),
    ("error", &[]),
    ("explain", &["lint"]),
    ("fit", &["config", "error"]),
    ("hub", &["error", "secret"]),
    ("k8s", &["error", "secret"]),
    ("lint", &["config", "error"]),
    ("nccl", &["config", "error", "explain"]),
    ("node", &[]),
    ("proof", &["nccl", "node"]),
    ("registry", &["error", "secret"]),
    ("render", &["agent", "config", "error", "lint", "steps"]),
    ("report", &["bench", "compare", "slo"]),
    ("secret", &[]),
    ("slo", &["bench"]),
    ("steps", &["agent", "aws", "bench", "config", "endpoint", "engine", "error", "explain", "hub", "k8s", "lint", "registry", "render", "secret"]),
    ("ui", &["engine", "error"]),
];

fn sources(folder: &Path, found: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sources(&path, found)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    Ok(())
}

/// The crate's modules that a source file names by `crate::`, outside its comments.
fn named(text: &str) -> Vec<String> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split("crate::").skip(1).map(str::to_owned).collect::<Vec<_>>())
        .map(|rest| rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect())
        .filter(|name: &String| !name.is_empty())
        .collect()
}

#[test]
fn point_one_way() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let allowed: BTreeMap<_, _> = ARROWS.iter().copied().collect();
    let mut files = Vec::new();
    sources(&root, &mut files).unwrap();
    assert!(files.len() > 20, "the sources are not where this test looks");
    let mut wrong = Vec::new();
    for file in files {
        let inner = file.strip_prefix(&root).unwrap();
        let module = inner.components().next().unwrap().as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned();
        if ["lib", "main"].contains(&module.as_str()) {
            continue;
        }
        let may = allowed.get(module.as_str()).copied().unwrap_or_default();
        for name in named(&std::fs::read_to_string(&file).unwrap()) {
            if name != module && !may.contains(&name.as_str()) {
                wrong.push(format!("{}: {module} may not name {name}", inner.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_wrong_arrow_is_seen() {
    assert_eq!(named("use crate::ui::say;\n// crate::cli\nlet x = crate::aws::Aws;"), ["ui", "aws"]);
}
