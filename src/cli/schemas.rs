//! The published schemas of `--output json`: `schemas/*.json` are what the types say, or this test fails.
//! To write them anew: `NEMO_WRITE_SCHEMAS=1 cargo test --lib schemas`.

use std::path::Path;

use schemars::{JsonSchema, schema_for};

fn published<T: JsonSchema>(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(format!("{name}.json"));
    let schema = serde_json::to_string_pretty(&schema_for!(T)).unwrap() + "\n";
    if std::env::var_os("NEMO_WRITE_SCHEMAS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &schema).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), schema, "{}: the type has changed; a field that is gone or renamed breaks pipelines", path.display());
}

#[test]
fn are_what_the_types_say() {
    published::<crate::engine::event::Event>("event");
    published::<crate::ui::Failed>("failure");
    published::<super::up::Summary>("up");
    published::<super::plan::Answer>("plan");
    published::<super::status::Answer>("status");
    published::<super::cleanup::Answer>("cleanup");
    published::<super::test::Answer>("test");
    published::<crate::proof::Answer>("cluster-test");
    published::<super::connect::Answer>("connect");
    published::<super::render::Answer>("render");
    published::<super::diff::Answer>("diff");
    published::<super::rollback::Answer>("revisions");
    published::<crate::lint::Answer>("lint");
    published::<super::explain::Answer>("explain");
    published::<super::explain::RuleAnswer>("rule");
    published::<crate::check::Report>("check");
    published::<crate::fit::Answer>("fit");
    published::<crate::slo::Answer>("slo");
    published::<crate::compare::Answer>("compare");
    published::<super::report::Answer>("report");
    published::<super::config::Shown>("config-show");
    published::<super::config::Written>("config-init");
    published::<super::image::Answer>("image-list");
    published::<super::platform::Answer>("platform-status");
    published::<super::weights::Answer>("weights-status");
}
