//! `nemo lint`: the rules over manifests of any origin. Exit code 16 when one is broken that does not serve.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Access, Global, Session, Settings, cores};
use crate::engine::step::StepId;
use crate::error::{Failure, Kind, fail};
use crate::k8s;
use crate::lint::{self, Answer, Change, Linter, Severity};
use crate::steps::facts::ClusterFacts;
use crate::ui::{self, Manner, Output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Files, folders with *.yaml, *.yml and *.json, or - for stdin
    #[arg(value_name = "FILE|DIR|-", required_unless_present = "live")]
    paths: Vec<PathBuf>,
    /// Look at what is in the cluster instead
    #[arg(long, conflicts_with_all = ["paths", "fix"])]
    live: bool,
    /// Write the right value where that changes one word and nothing else, and show what was changed
    #[arg(long)]
    fix: bool,
    #[command(flatten)]
    settings: Settings,
}

/// So often is a file gone over: one word can break two rules.
const ROUNDS: usize = 4;

pub async fn run(args: Args, global: &Global) -> Result<(), Failure> {
    let answer = match args.live {
        true => live(&args, global).await?,
        false => looked_at(&args, global.manner())?,
    };
    match global.output {
        Output::Sarif => ui::json_line(&lint::sarif(&answer)),
        _ => ui::answer(global.manner(), &answer),
    }
    let Some(first) = answer.findings.iter().find(|finding| finding.severity == Severity::Error) else { return Ok(()) };
    let words = if answer.errors == 1 { "1 of the findings is an error".to_owned() } else { format!("{} of the findings are errors", answer.errors) };
    Err(Failure::new(Kind::Verification, words).hint(format!("nemo explain {} tells why, and what to do", first.rule)))
}

async fn live(args: &Args, global: &Global) -> Result<Answer, Failure> {
    let session = Session::open(global, &args.settings, Access::Read).await?;
    let found = objects(&session).await;
    session.finish().await;
    let mut linter = Linter::new()?;
    for object in found? {
        linter.value("", object);
    }
    Ok(linter.end())
}

async fn objects(session: &Session) -> Result<Vec<serde_json::Value>, Failure> {
    let none = || Failure::from(fail(Kind::Usage, format!("there is no cluster in the notes about {:?} here", session.spec.name)).hint("nemo lint FILE looks at files"));
    let cluster: ClusterFacts = session.noted.as_ref().ok_or_else(none)?.facts().get(StepId::Cluster).map_err(|_| none())?;
    let (deps, _) = session.noted_walk().await?;
    let found = k8s::told::objects(&deps.kube_of(&cluster)?, &session.spec.serve.namespace).await;
    Ok(found.map_err(anyhow::Error::new)?)
}

fn looked_at(args: &Args, manner: Manner) -> Result<Answer, Failure> {
    let mut linter = Linter::new()?;
    for path in &args.paths {
        if path.as_os_str() == "-" {
            if args.fix {
                return Err(fail(Kind::Usage, "--fix writes files, and stdin is none").hint("nemo lint --fix FILE").into());
            }
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading stdin")?;
            one(&mut linter, "stdin", &text)?;
            continue;
        }
        let files = files(path)?;
        if args.fix {
            for file in files {
                let (name, text) = read(&file)?;
                one(&mut linter, &name, &fixed(&file, text, manner)?)?;
            }
            continue;
        }
        for part in cores::spread(&files, |files| part(linter.another(), files)) {
            linter.join(part?);
        }
    }
    Ok(linter.end())
}

/// What this linter makes of a part of the files.
fn part(mut linter: Linter, files: &[PathBuf]) -> Result<Linter, Failure> {
    for file in files {
        let (name, text) = read(file)?;
        one(&mut linter, &name, &text)?;
    }
    Ok(linter)
}

fn read(file: &Path) -> Result<(String, String), Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).with_context(|| format!("reading {name}"))?;
    Ok((name, text))
}

fn one(linter: &mut Linter, name: &str, text: &str) -> Result<(), Failure> {
    linter.text(name, text).map_err(|bad| {
        let failure = fail(Kind::Config, format!("{name}:{}: this is no YAML: {}", bad.line, bad.what));
        // The braces of a template are what most files that are no YAML have in common.
        let hint =
            if text.contains("{{") { "a template is linted once it is rendered: nemo render, helm template" } else { "correct the line named above, then run the same command" };
        failure.hint(hint).into()
    })
}

/// The text of the file after what could be repaired was; it is written only when something was.
fn fixed(file: &Path, mut text: String, manner: Manner) -> Result<String, Failure> {
    let name = file.display().to_string();
    let mut changes: Vec<Change> = Vec::new();
    for _ in 0..ROUNDS {
        let mut linter = Linter::new()?;
        one(&mut linter, &name, &text)?;
        let answer = linter.end();
        let (better, changed) = lint::fixed(&text, &answer.findings.iter().collect::<Vec<_>>());
        if changed.is_empty() {
            break;
        }
        (text, changes) = (better, changes.into_iter().chain(changed).collect());
    }
    if !changes.is_empty() {
        write(file, &text).with_context(|| format!("writing {name}"))?;
    }
    for change in changes {
        ui::say(manner, format!("{name}:{}: {}\n  - {}\n  + {}", change.line, change.rule, change.old, change.new));
    }
    Ok(text)
}

/// Beside the file, then in its place: who reads it sees the old text or the new one.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    // A link stays one: what it leads to is written.
    let file = std::fs::canonicalize(file)?;
    let mut beside = tempfile::NamedTempFile::new_in(file.parent().unwrap_or(Path::new(".")))?;
    beside.write_all(text.as_bytes())?;
    beside.as_file().set_permissions(std::fs::metadata(&file)?.permissions())?;
    beside.as_file().sync_all()?;
    beside.persist(&file)?;
    Ok(())
}

/// The file itself, or the manifests below the folder, in a fixed order. Links to folders inside of it are not followed, as kubectl and grep do: one to `.` would have no end.
fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let (mut found, mut folders) = (Vec::new(), vec![path.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("reading {}", folder.display()))? {
            let entry = entry.with_context(|| format!("reading {}", folder.display()))?;
            let path = entry.path();
            if path.is_dir() {
                let linked = entry.file_type().with_context(|| format!("reading {}", path.display()))?.is_symlink();
                folders.extend((!linked).then_some(path));
            } else if path.extension().is_some_and(|extension| ["yaml", "yml", "json"].iter().any(|known| extension == *known)) {
                found.push(path);
            }
        }
    }
    if found.is_empty() {
        return Err(fail(Kind::Usage, format!("{}: no *.yaml, *.yml or *.json below it", path.display())).hint("name a file, or a folder with manifests").into());
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_to_folders_are_not_followed_and_links_to_files_are() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("below")).unwrap();
        for name in ["a.yaml", "below/b.yml", "below/c.txt"] {
            std::fs::write(at(name), "a: 1\n").unwrap();
        }
        for (to, name) in [(".", "one"), (".", "two.yaml"), ("..", "below/up"), ("below", "again"), ("below/b.yml", "d.json")] {
            symlink(to, at(name)).unwrap();
        }
        let names = |path: &Path| files(path).unwrap().iter().map(|file| file.strip_prefix(folder.path()).unwrap().display().to_string()).collect::<Vec<_>>();
        assert_eq!(names(folder.path()), ["a.yaml", "below/b.yml", "d.json"]);
        assert_eq!(names(&at("again")), ["again/b.yml"], "the folder that is named may be a link itself");
    }
}
