//! A file system that turned out slow: every time that derives from its rate.

use nemo::agent::fetch::ReadRate;
use nemo::lint::{Linter, Severity};
use nemo::render::serving;

use super::documents::serving_values_at;

/// What was measured is in the annotation, the comment and every time that derives from it; the lint holds them together.
#[test]
fn a_slow_file_system_makes_every_patience_longer() {
    for (topology, form) in [("aggregated", "deployments"), ("pipeline-parallel", "lws"), ("aggregated", "dgd-v1alpha1"), ("aggregated", "dgd-v1beta1")] {
        let read = ReadRate { mb_s: 100, streams: 8, on: "2026-12-01".into() };
        let rendered = serving(&serving_values_at(&[("serve.topology", topology), ("serve.form", form), ("gpu.nodes", "3")], read)).unwrap();
        let text: String = rendered.iter().map(|file| file.text.as_str()).collect();
        // 227 GB twice at 100 MB/s, and 900 s; a probe every 5 s.
        for wanted in
            ["nemo.dev/read-mb-s: \"100\"", "at 100 MB/s (measured on 2026-12-01 with 8 streams, of 292 MB/s provisioned), twice", "failureThreshold: 1088", "value: \"5440\""]
        {
            assert!(text.contains(wanted), "{form}: {wanted}");
        }
        let mut linter = Linter::new().unwrap();
        rendered.iter().flat_map(|file| file.manifests.clone()).for_each(|manifest| linter.value("rendered", manifest));
        let errors: Vec<_> = linter.end().findings.iter().filter(|finding| finding.severity == Severity::Error).map(ToString::to_string).collect();
        assert_eq!(errors, Vec::<String>::new(), "{form}");
    }
}
