//! Lists the catalogue's files, so that adding a model or an instance type is adding one file.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let mut text = String::new();
    for (constant, folder) in [("INSTANCES", "configs/instances"), ("MODELS", "configs/models")] {
        println!("cargo::rerun-if-changed={folder}");
        let mut names = Vec::new();
        for entry in fs::read_dir(Path::new(&root).join(folder))? {
            let file = entry?.file_name().to_string_lossy().into_owned();
            names.extend(file.strip_suffix(".toml").map(str::to_owned));
        }
        names.sort();
        let _ = writeln!(text, "const {constant}: &[File] = &[");
        for name in names {
            // Not the path of this checkout: the build folder is shared, and another checkout may find this list in it.
            let _ = writeln!(text, "    ({name:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{folder}/{name}.toml\"))),");
        }
        text.push_str("];\n");
    }
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("catalogue.rs"), text)
}
