//! Hints that can be typed as they stand: commands in them speak of the deployment that failed, not of the default one.

use clap::CommandFactory;

use super::{Cli, Global, Settings, session};
use crate::config;
use crate::error::Failure;

/// The name that a deployment has when nobody says one.
const DEFAULT: &str = "nemo";

/// ` --name x` for a command about this deployment; nothing for the default one.
pub fn flag(name: &str) -> String {
    if name == DEFAULT { String::new() } else { format!(" --name {name}") }
}

/// The failure with `--name` in every command that it offers, where the deployment has a name of its own.
pub fn for_deployment(mut failure: Failure, global: &Global) -> Failure {
    if !failure.left.is_empty() && !failure.hints.iter().any(|hint| hint.contains("nemo cleanup")) {
        failure.hints.push("nemo cleanup removes what exists".to_owned());
    }
    // Wrong settings are what failed, then: no deployment is known.
    let Ok((spec, _)) = session::inputs(global, &Settings::default()).and_then(|inputs| config::load(&inputs).map_err(Failure::from)) else { return failure };
    let flag = flag(&spec.name);
    failure.hints = failure.hints.iter().map(|hint| named(hint, &flag)).collect();
    failure
}

/// `nemo up --to serve` → `nemo up --name x --to serve`
fn named(hint: &str, flag: &str) -> String {
    if hint.contains("--name") {
        return hint.to_owned();
    }
    let program = Cli::command();
    let is_command = |word: &str| program.get_subcommands().any(|command| command.get_name() == word);
    let mut text = String::new();
    let mut before = "";
    for (n, word) in hint.split(' ').enumerate() {
        text.push_str(if n > 0 { " " } else { "" });
        let bare = word.trim_end_matches(['`', ',', ';', ':', '.']);
        if before.trim_start_matches(['`', '(']) == "nemo" && is_command(bare) {
            text.push_str(&format!("{bare}{flag}{}", &word[bare.len()..]));
        } else {
            text.push_str(word);
        }
        before = word;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT, flag, named};

    #[test]
    fn commands_get_the_name_and_words_do_not() {
        for (hint, expected) in [
            ("nemo up --to serve", "nemo up --name x --to serve"),
            ("run it again; `nemo cleanup` removes what exists", "run it again; `nemo cleanup --name x` removes what exists"),
            ("nemo cleanup --name y again", "nemo cleanup --name y again"),
            ("another nemo works on it: nemo status, or wait", "another nemo works on it: nemo status --name x, or wait"),
            ("nemo cluster create", "nemo cluster --name x create"),
        ] {
            assert_eq!(named(hint, &flag("x")), expected);
            assert_eq!(named(hint, &flag(DEFAULT)), hint);
        }
    }
}
