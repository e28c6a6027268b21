//! `nemo agent copy`: puts the binary into a folder, from which a pod's other container starts it.

use std::fs;
use std::path::Path;

use anyhow::Context;

/// Copies the running binary to `folder/nemo`. A file that is there is replaced, not written over: it may be running.
pub fn copy(folder: &Path) -> anyhow::Result<()> {
    let target = folder.join("nemo");
    let part = folder.join(".nemo.part");
    // The copy keeps the mode, which lets it be run.
    fs::copy("/proc/self/exe", &part).with_context(|| format!("copying the binary to {}", part.display()))?;
    fs::rename(&part, &target).with_context(|| format!("putting the binary at {}", target.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_copy_can_be_run() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("nemo"), "old").unwrap();
        copy(folder.path()).unwrap();
        let meta = fs::metadata(folder.path().join("nemo")).unwrap();
        assert_eq!(meta.len(), fs::metadata("/proc/self/exe").unwrap().len());
        assert_ne!(meta.permissions().mode() & 0o111, 0);
        assert!(copy(Path::new("/nowhere")).unwrap_err().to_string().contains("/nowhere"));
    }
}
