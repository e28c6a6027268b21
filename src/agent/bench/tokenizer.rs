//! The model's tokenizer, laid out so that aiperf loads it without a hub.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::error::{Kind, fail};

/// What tokenizers are made of. Not `config.json`: it names the model's class, which aiperf's transformers need not know.
const PARTS: [&str; 6] = ["tokenizer", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template"];

/// Copies the tokenizer's files out of the folder of the weights, and gives the folder to name to aiperf.
pub(super) fn lay(weights: &Path, attempt: &Path) -> anyhow::Result<PathBuf> {
    let folder = attempt.join("tokenizer");
    fs::create_dir(&folder).with_context(|| format!("making {}", folder.display()))?;
    let mut found = false;
    for entry in fs::read_dir(weights).with_context(|| format!("reading the folder of the weights, {}", weights.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        let text = name.to_string_lossy();
        if PARTS.iter().any(|part| text.starts_with(part)) && entry.path().is_file() {
            fs::copy(entry.path(), folder.join(&name)).with_context(|| format!("copying {}", entry.path().display()))?;
            found |= text.starts_with("tokenizer");
        }
    }
    if !found {
        return Err(fail(Kind::Config, format!("{} holds no tokenizer*.json", weights.display())).hint("nemo weights status").into());
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tokenizer_is_copied() {
        let (weights, attempt) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json", "model-00001.safetensors"] {
            fs::write(weights.path().join(name), "{}").unwrap();
        }
        let folder = lay(weights.path(), attempt.path()).unwrap();
        let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]);
        let error = lay(attempt.path(), tempfile::tempdir().unwrap().path()).unwrap_err();
        assert!(error.to_string().contains("holds no tokenizer*.json"), "{error}");
    }
}
