//! Would the serving manifests render and serve with what the user lays over them? Without an answer now it would come after an hour of waiting.

use super::report::{Answered, Question};
use crate::config::Spec;
use crate::error::Failure;
use crate::steps::serve;

/// `overlay`; not asked where there is none.
pub(super) fn overlay(spec: &Spec) -> Option<Answered> {
    if spec.overlay.is_empty() {
        return None;
    }
    let question = Question::new("overlay");
    let files: Vec<_> = spec.overlay.templates.iter().chain(&spec.overlay.patches).map(|file| file.path.as_str()).collect();
    Some(match serve::trial(spec).map_err(Failure::from) {
        Ok(()) => question.ok(format!("renders, and breaks no rule: {}", files.join(", "))),
        Err(failure) => question.red(failure.kind, failure.message, failure.hints.join("; ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Verdict;
    use crate::config::{Inputs, load};
    use crate::error::Kind;

    const CONTAINER: &str = include_str!("../../templates/kubernetes/worker-container.yaml");
    const ACCESS: &str = include_str!("../../templates/kubernetes/access.yaml");
    const WORKER: &str = include_str!("../../templates/kubernetes/worker.yaml");

    /// The answer with these files; `p.yaml` is the patches, everything else a template.
    fn asked(files: &[(&str, String)], settings: &[(&str, &str)]) -> Answered {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("t")).unwrap();
        let mut flags: Vec<(String, String)> = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        for (name, text) in files {
            let (key, value, path) = if *name == "p.yaml" { ("render.patches", "p.yaml", "p.yaml".to_owned()) } else { ("render.templates", "t", format!("t/{name}")) };
            std::fs::write(folder.path().join(path), text).unwrap();
            flags.push((key.into(), value.into()));
        }
        let (spec, _) = load(&Inputs { working_folder: folder.path().into(), file: None, env: Vec::new(), flags }).unwrap();
        overlay(&spec).unwrap()
    }

    fn patch(kind: &str, name: &str, patch: &str) -> (&'static str, String) {
        ("p.yaml", format!("# ours\n- target: {{kind: {kind}, name: {name}}}\n  patch:\n{patch}"))
    }

    const NO_EFA: &str = "  - {op: remove, path: /spec/template/spec/containers/0/resources/requests/vpc.amazonaws.com~1efa}\n  - {op: remove, path: /spec/template/spec/containers/0/resources/limits/vpc.amazonaws.com~1efa}\n";

    #[test]
    fn what_is_right_is_taken() {
        let more = format!("{ACCESS}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: notes, namespace: {{{{ namespace }}}}}}\ndata: {{by: \"no\"}}\n");
        let files = [
            ("access.yaml", more),
            patch("Deployment", "vllm-worker", "  - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: VLLM_LOGGING_LEVEL, value: DEBUG}}\n"),
        ];
        let answered = asked(&files, &[]);
        assert_eq!((answered.verdict, answered.answer.as_str()), (Verdict::Ok, "renders, and breaks no rule: t/access.yaml, p.yaml"), "{answered:?}");
        let graph = [patch("DynamoGraphDeployment", "nemo", "    metadata: {annotations: {team: serving}}\n")];
        assert_eq!(asked(&graph, &[("serve.form", "dgd-v1beta1")]).verdict, Verdict::Ok);
    }

    #[test]
    fn what_would_not_serve_is_refused_with_the_rule_and_the_file() {
        let answered = asked(&[patch("Deployment", "vllm-worker", NO_EFA)], &[]);
        assert_eq!(answered.kind, Some(Kind::Verification), "{answered:?}");
        assert!(answered.answer.contains("error N18") && answered.answer.contains("worker.yaml is made with p.yaml:2"), "{}", answered.answer);
        assert!(answered.fix.unwrap().contains("nemo explain N18"));
        let without = CONTAINER.lines().filter(|line| !line.contains("vpc.amazonaws.com/efa")).collect::<Vec<_>>().join("\n");
        let answered = asked(&[("worker-container.yaml", without)], &[]);
        assert!(answered.answer.contains("error N18") && answered.answer.contains("is made with t/worker-container.yaml"), "{}", answered.answer);
    }

    #[test]
    fn what_is_wrong_with_a_template_is_told_with_file_line_and_value() {
        for (name, text, words) in [
            (
                "worker-container.yaml",
                CONTAINER.replacen("image: {{ image }}", "image: {{ imgae }}", 1),
                "t/worker-container.yaml:2: undefined value: `imgae` is undefined: image: {{ imgae }}",
            ),
            ("worker-container.yaml", CONTAINER.replacen("{%- endfor %}", "{%- endfro %}", 1), "t/worker-container.yaml:"),
            ("worker-container.yaml", CONTAINER.replacen("image: {{ image }}", "image: [a", 1), "t/worker-container.yaml: it renders to what is no YAML, in line"),
            ("worker-container.yaml", CONTAINER.replacen("env:\n", "env:\n- {name: A, value: y}\n", 1), "error yaml-type: a plain word that is no string"),
            ("worker-container.yaml", CONTAINER.replacen("env:\n", "env:\n- {name: A, value: 1e3}\n", 1), "found 1e3"),
            ("worker-container.yml", CONTAINER.to_owned(), "t/worker-container.yml: the serving manifests have no template of that name; did you mean worker-container.yaml?"),
            ("bench.yaml", CONTAINER.to_owned(), "t/bench.yaml: the serving manifests have no template of that name"),
            (
                "access.yaml",
                format!("{ACCESS}---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: x}}\n"),
                "ClusterRole x: nemo would not take it away again",
            ),
            ("access.yaml", format!("{ACCESS}---\napiVersion: v1\nmetadata: {{name: x}}\n"), "t/access.yaml: access.yaml: "),
            ("worker.yaml", WORKER.replace("name: {{ component.name }}", "name: {{ component.name ~ \"-2\" }}"), "t/worker.yaml: no workload vllm-worker comes out"),
        ] {
            assert!(text != CONTAINER || !name.ends_with("container.yaml"), "{words}: nothing was changed");
            let answered = asked(&[(name, text)], &[]);
            assert!(answered.answer.contains(words) && answered.kind.is_some_and(|kind| kind != Kind::Bug), "{words}: {answered:?}");
            assert!(!answered.fix.unwrap_or_default().is_empty(), "{words}");
        }
    }

    #[test]
    fn nothing_is_asked_where_there_is_no_overlay() {
        let (spec, _) = load(&Inputs { working_folder: "/nowhere".into(), file: None, env: Vec::new(), flags: Vec::new() }).unwrap();
        assert_eq!(overlay(&spec), None);
    }
}
