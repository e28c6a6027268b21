//! What users lay over the manifests: the files that `render.templates` and `render.patches` lead to, read like every other file of settings.

use std::path::Path;

use serde::Serialize;

use super::layers::Layers;
use super::load::{LONGEST, read as read_bytes};
use crate::error::{Kind, fail};

/// Users' files over what is rendered.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Overlay {
    /// In the order of their names.
    pub templates: Vec<OverlayFile>,
    pub patches: Option<OverlayFile>,
}

/// A file of an overlay with its text.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OverlayFile {
    /// `worker.yaml`
    pub name: String,
    /// As its user would type it.
    pub path: String,
    pub text: String,
}

impl Overlay {
    /// Is nothing laid over what is rendered?
    pub fn is_empty(&self) -> bool {
        self.templates.is_empty() && self.patches.is_none()
    }
}

/// Reads what the settings name. What is named has to be there.
pub(super) fn read(working_folder: &Path, layers: &Layers) -> anyhow::Result<Overlay> {
    let wrong = |key: &str, why: String, hint: &str| anyhow::Error::from(fail(Kind::Config, format!("{}: {why}", layers.place(key))).hint(hint));
    let (folder, file) = (layers.text("render.templates"), layers.text("render.patches"));
    let mut overlay = Overlay::default();
    if !folder.is_empty() {
        let said = |error: std::io::Error| wrong("render.templates", error.to_string(), "name a folder with templates called as nemo's own, such as worker-container.yaml");
        let mut names = Vec::new();
        for entry in std::fs::read_dir(working_folder.join(folder)).map_err(said)? {
            // An editor's backups and a folder's hidden files are no templates.
            names.push(entry.map_err(said)?.file_name().to_string_lossy().into_owned());
        }
        names.retain(|name| !name.starts_with('.') && !name.ends_with('~'));
        names.sort();
        for name in names {
            overlay
                .templates
                .push(file_of(working_folder, &Path::new(folder).join(&name)).map_err(|why| wrong("render.templates", why, "templates are text files, and no folders"))?);
        }
        if overlay.templates.is_empty() {
            return Err(wrong("render.templates", "the folder is empty".into(), "put a template into it that is called as one of nemo's own, such as worker-container.yaml"));
        }
    }
    if !file.is_empty() {
        let read = file_of(working_folder, Path::new(file)).map_err(|why| wrong("render.patches", why, "name a file with a list of patches, each with target and patch"))?;
        overlay.patches = Some(read);
    }
    Ok(overlay)
}

fn file_of(working_folder: &Path, path: &Path) -> Result<OverlayFile, String> {
    let wrong = |why: String| format!("{}: {why}", path.display());
    let bytes = read_bytes(&working_folder.join(path), true).map_err(|error| wrong(error.to_string()))?;
    if bytes.len() > LONGEST {
        return Err(wrong(format!("larger than {} kB", LONGEST / 1000)));
    }
    let text = String::from_utf8(bytes).map_err(|_| wrong("not UTF-8 text".into()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(OverlayFile { name, path: path.display().to_string(), text })
}

#[cfg(test)]
mod tests {
    use crate::config::{Inputs, Overlay, load};
    use crate::error::{Failure, Kind};

    fn loaded(folder: &std::path::Path, flags: &[(&str, &str)]) -> Result<Overlay, Failure> {
        let flags = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Ok(load(&Inputs { working_folder: folder.into(), file: None, env: Vec::new(), flags })?.0.overlay)
    }

    #[test]
    fn what_is_named_is_read_and_has_to_be_there() {
        let folder = tempfile::tempdir().unwrap();
        assert!(loaded(folder.path(), &[]).unwrap().is_empty());
        std::fs::create_dir(folder.path().join("t")).unwrap();
        for (key, value, words) in [
            ("render.templates", "nowhere", "--templates: render.templates = \"nowhere\": No such file"),
            ("render.templates", "t", "--templates: render.templates = \"t\": the folder is empty"),
            ("render.patches", "p.yaml", "--patches: render.patches = \"p.yaml\": p.yaml: No such file"),
        ] {
            let failure = loaded(folder.path(), &[(key, value)]).unwrap_err();
            assert!(failure.kind == Kind::Config && failure.message.starts_with(words) && !failure.hints.is_empty(), "{failure}");
        }
        for (name, text) in [("t/worker.yaml", "w"), ("t/access.yaml", "a"), ("t/.hidden", "h"), ("t/worker.yaml~", "b"), ("p.yaml", "p")] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let overlay = loaded(folder.path(), &[("render.templates", "t"), ("render.patches", "p.yaml")]).unwrap();
        let templates: Vec<_> = overlay.templates.iter().map(|file| (file.name.as_str(), file.path.as_str(), file.text.as_str())).collect();
        assert_eq!(templates, [("access.yaml", "t/access.yaml", "a"), ("worker.yaml", "t/worker.yaml", "w")]);
        assert_eq!(overlay.patches.unwrap().path, "p.yaml");
    }
}
