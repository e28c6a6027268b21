//! `nemo lint`: the rules over manifests of any origin. Exit code 16 when one is broken that does not serve.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::{Access, Global, Session, Settings, cores};
use crate::error::{Failure, Kind, fail};
use crate::k8s;
use crate::lint::{self, Answer, Change, Linter, Severity};
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
    let (answer, bad) = match args.live {
        true => (live(&args, global).await?, Vec::new()),
        false => looked_at(&args, global.manner())?,
    };
    match global.output {
        Output::Sarif => ui::json_line(&lint::sarif(&answer)),
        _ => ui::answer(global.manner(), &answer),
    }
    failure(&answer, bad).map_or(Ok(()), Err)
}

/// Files that could not be looked at, each with its place, and findings that are errors; of several codes the lowest.
fn failure(answer: &Answer, bad: Vec<Failure>) -> Option<Failure> {
    let first = answer.findings.iter().find(|finding| finding.severity == Severity::Error);
    let errors = first.map(|first| {
        let words = if answer.errors == 1 { "1 of the findings is an error".to_owned() } else { format!("{} of the findings are errors", answer.errors) };
        Failure::new(Kind::Verification, words).hint(format!("nemo explain {} tells why, and what to do", first.rule))
    });
    let all: Vec<Failure> = bad.into_iter().chain(errors).collect();
    let kind = all.iter().map(|failure| failure.kind).min()?;
    let message: Vec<_> = all.iter().map(|failure| failure.message.as_str()).collect();
    let mut hints: Vec<String> = Vec::new();
    for hint in all.iter().flat_map(|failure| &failure.hints) {
        if !hints.contains(hint) {
            hints.push(hint.clone());
        }
    }
    Some(hints.into_iter().fold(Failure::new(kind, message.join("\n  ")), Failure::hint))
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
    let (_, _, client) = session.cluster().await?;
    Ok(k8s::told::objects(&client, &session.spec.serve.namespace).await.map_err(anyhow::Error::new)?)
}

/// What the linter makes of all files, and which of them it could not look at: one that is no YAML is no reason to say nothing of the others.
fn looked_at(args: &Args, manner: Manner) -> Result<(Answer, Vec<Failure>), Failure> {
    let (mut linter, mut bad) = (Linter::new()?, Vec::new());
    for path in &args.paths {
        if path.as_os_str() == "-" {
            if args.fix {
                return Err(fail(Kind::Usage, "--fix writes files, and stdin is none").hint("nemo lint --fix FILE").into());
            }
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).context("reading stdin")?;
            bad.extend(one(&mut linter, "stdin", &text).err());
            continue;
        }
        let files = files(path)?;
        if args.fix {
            for file in files {
                let looked = read(&file).and_then(|(name, text)| one(&mut linter, &name, &fixed(&file, text, manner)?));
                bad.extend(looked.err());
            }
            continue;
        }
        for (part, unread) in cores::spread(&files, |files| part(linter.another(), files)) {
            linter.join(part);
            bad.extend(unread);
        }
    }
    Ok((linter.end(), bad))
}

/// What this linter makes of a part of the files.
fn part(mut linter: Linter, files: &[PathBuf]) -> (Linter, Vec<Failure>) {
    let mut bad = Vec::new();
    for file in files {
        bad.extend(read(file).and_then(|(name, text)| one(&mut linter, &name, &text)).err());
    }
    (linter, bad)
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

    #[test]
    fn every_file_is_looked_at_and_every_bad_one_is_told() {
        const POD: &str =
            "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\nspec:\n  volumes: [{name: ib, hostPath: {path: /dev/infiniband}}]\n  containers: [{name: c, image: \"x:latest\"}]\n";
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [("a.yaml", "a: [\n"), ("b.yaml", POD), ("c.yaml", "x: y: z\n"), ("d.yaml", "\u{0}\n")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        std::fs::write(folder.path().join("e.yaml"), b"\xff\xfe").unwrap();
        let args = Args { paths: vec![folder.path().to_owned()], live: false, fix: false, settings: Settings::default() };
        let manner = Manner { output: Output::default(), progress: ui::Progress::default(), quiet: true };
        let (answer, bad) = looked_at(&args, manner).unwrap();
        let lines: Vec<_> = answer.findings.iter().map(|finding| finding.line).collect();
        assert!(!lines.is_empty() && lines.is_sorted(), "{lines:?}");
        let failure = failure(&answer, bad).unwrap();
        assert_eq!(failure.kind, Kind::Config, "of a bad file, of a finding and of one that cannot be read the lowest");
        for name in ["a.yaml:", "c.yaml:", "e.yaml"] {
            assert!(failure.message.contains(name), "{name}: {}", failure.message);
        }
        assert!(!failure.message.contains("b.yaml"), "{}", failure.message);
    }
}
