//! The lint between rendering and applying: what is known not to serve is not applied.

use crate::error::{Kind, fail};
use crate::lint::{Finding, Linter, Severity};
use crate::render::Rendered;

/// Refuses manifests with findings that are errors, naming all of them.
pub fn refuse(rendered: &[Rendered]) -> anyhow::Result<()> {
    let mut linter = Linter::new()?;
    for file in rendered {
        linter.text(file.file, &file.text)?;
    }
    let answer = linter.end();
    let told = |finding: &Finding| match rendered.iter().find(|file| file.file == finding.file).map(|file| file.overlays.join(", ")) {
        Some(overlays) if !overlays.is_empty() => format!("{finding}\n    {} is made with {overlays}", finding.file),
        _ => finding.to_string(),
    };
    let errors: Vec<String> = answer.findings.iter().filter(|finding| finding.severity == Severity::Error).map(told).collect();
    let Some(first) = answer.findings.iter().find(|finding| finding.severity == Severity::Error) else { return Ok(()) };
    let failure = fail(Kind::Verification, format!("the manifests would not serve: {}", errors.join("; ")));
    Err(failure.hint(format!("nemo explain {}; nemo render --out DIR, nemo lint DIR", first.rule)).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_not_serve_is_refused_before_it_is_applied() {
        let file = |text: &str| Rendered { file: "worker.yaml", text: text.to_owned(), manifests: Vec::new(), overlays: Vec::new() };
        let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: p, namespace: nemo}\nspec:\n  volumes: [{name: ib, hostPath: {path: /dev/infiniband}}]\n  containers:\n  - {name: c, image: \"x:1\", resources: {limits: {vpc.amazonaws.com/efa: \"1\"}}, securityContext: {privileged: true}}\n";
        let error = refuse(&[file(pod)]).unwrap_err();
        assert!(error.to_string().contains("worker.yaml:5: error N16"), "{error}");
        assert!(refuse(&[file(&pod.replace("/dev/infiniband", "/opt"))]).is_ok());
    }
}
