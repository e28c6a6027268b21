//! Our entry in the user's kubeconfig: cluster, user, context. Whatever else is in the file stays.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde_json::{Value, json};

use crate::error::{Kind, fail};

/// What is entered.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Of cluster, user and context.
    pub name: String,
    pub server: String,
    /// PEM, base64.
    pub certificate_authority: String,
    /// The namespace that `kubectl` looks into without `-n`.
    pub namespace: String,
    /// Program and arguments that print an ExecCredential.
    pub command: Vec<String>,
    /// Variables that the program needs, such as AWS_PROFILE.
    pub env: Vec<(String, String)>,
}

/// The file that kubectl writes to: the first of `$KUBECONFIG`, else `~/.kube/config`.
pub fn path() -> Option<PathBuf> {
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let first = named.and_then(|value| std::env::split_paths(&value).find(|path| !path.as_os_str().is_empty()));
    first.or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".kube/config")))
}

/// Enters it and makes it the current context, as `aws eks update-kubeconfig` does. `false`: the file said so already.
/// Entries of that name that we did not make are left, and told.
pub fn enter(path: &Path, entry: &Entry) -> anyhow::Result<bool> {
    change(path, |config| {
        if is_foreign(config, &entry.name) {
            return Err(fail(Kind::Conflict, format!("{} has a user {} that nemo did not make: it is left as it is", path.display(), entry.name))
                .hint("rename it, or set KUBECONFIG to another file")
                .into());
        }
        put(config, "clusters", &entry.name, "cluster", json!({"server": entry.server, "certificate-authority-data": entry.certificate_authority}));
        put(config, "users", &entry.name, "user", json!({"exec": exec(entry)}));
        let context = json!({"cluster": entry.name, "user": entry.name, "namespace": entry.namespace});
        put(config, "contexts", &entry.name, "context", context);
        config["current-context"] = json!(entry.name);
        Ok(())
    })
}

/// Whether a user of that name signs in by something else than `nemo cluster token`.
fn is_foreign(config: &Value, name: &str) -> bool {
    let users = config["users"].as_array().into_iter().flatten();
    users.filter(|user| user["name"] == name).any(|user| {
        let arguments = user["user"]["exec"]["args"].as_array().map(Vec::as_slice).unwrap_or_default();
        !arguments.starts_with(&[json!("cluster"), json!("token")])
    })
}

/// Takes it out again; the current context only if it was ours. `false`: it was not there.
pub fn remove(path: &Path, name: &str) -> anyhow::Result<bool> {
    if !path.exists() {
        return Ok(false);
    }
    change(path, |config| {
        if is_foreign(config, name) {
            return Ok(());
        }
        for list in ["clusters", "users", "contexts"] {
            if let Some(entries) = config.get_mut(list).and_then(Value::as_array_mut) {
                entries.retain(|entry| entry["name"] != name);
            }
        }
        if config["current-context"] == name {
            config["current-context"] = json!("");
        }
        Ok(())
    })
}

fn exec(entry: &Entry) -> Value {
    let env: Vec<_> = entry.env.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": entry.command.first(),
        "args": entry.command.get(1..),
        "env": env,
        "interactiveMode": "IfAvailable",
        "provideClusterInfo": false,
    })
}

fn put(config: &mut Value, list: &str, name: &str, key: &str, value: Value) {
    if !config[list].is_array() {
        config[list] = json!([]);
    }
    let Some(entries) = config[list].as_array_mut() else { return };
    let entry = json!({"name": name, key: value});
    match entries.iter_mut().find(|entry| entry["name"] == name) {
        Some(there) => *there = entry,
        None => entries.push(entry),
    }
}

/// Reads, changes and replaces the file in one go, under the lock that kubectl uses, too.
fn change(path: &Path, edit: impl FnOnce(&mut Value) -> anyhow::Result<()>) -> anyhow::Result<bool> {
    // A link stays a link: what it points to is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let _lock = Lock::take(&path)?;
    let before = read(&path)?;
    let mut after = before.clone().unwrap_or_else(|| json!({"apiVersion": "v1", "kind": "Config", "preferences": {}, "clusters": [], "users": [], "contexts": []}));
    edit(&mut after)?;
    if before.as_ref() == Some(&after) {
        return Ok(false);
    }
    let text = serde_saphyr::to_string(&after).context("writing YAML")?;
    // A temporary file is made readable by its owner only, as kubectl makes this one.
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(|| format!("writing in {}", folder.display()))?;
    file.write_all(text.as_bytes()).and_then(|()| file.as_file().sync_all()).with_context(|| format!("writing {}", path.display()))?;
    file.persist(&path).with_context(|| format!("replacing {}", path.display()))?;
    Ok(true)
}

fn read(path: &Path) -> anyhow::Result<Option<Value>> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    if text.trim().is_empty() {
        return Ok(None);
    }
    let value: Value = serde_saphyr::from_str(&text).map_err(|error| not_ours_to_mend(path, &error.to_string()))?;
    if value.is_object() { Ok(Some(value)) } else { Err(not_ours_to_mend(path, "it is no mapping")) }
}

fn not_ours_to_mend(path: &Path, why: &str) -> anyhow::Error {
    fail(Kind::Config, format!("{} is no kubeconfig, and is left as it is: {why}", path.display())).hint("mend it, or set KUBECONFIG to another file").into()
}

/// `FILE.lock`, as client-go makes it.
struct Lock(PathBuf);

impl Lock {
    fn take(path: &Path) -> anyhow::Result<Self> {
        let mut name = path.as_os_str().to_owned();
        name.push(".lock");
        let lock = PathBuf::from(name);
        match std::fs::OpenOptions::new().write(true).create_new(true).open(&lock) {
            Ok(_) => Ok(Self(lock)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                Err(fail(Kind::Conflict, format!("{} is being written by somebody else", path.display())).hint(format!("if nobody is: rm {}", lock.display())).into())
            }
            Err(error) => Err(error).with_context(|| format!("making {}", lock.display())),
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            name: "nemo.us-east-2".into(),
            server: "https://10.0.0.1:6443".into(),
            certificate_authority: "Y2E=".into(),
            namespace: "nemo".into(),
            command: ["/usr/bin/nemo", "cluster", "token", "--name", "nemo"].map(str::to_owned).into(),
            env: vec![("AWS_PROFILE".into(), "no".into())],
        }
    }

    const OTHERS: &str = "apiVersion: v1\nkind: Config\ncurrent-context: work\nclusters:\n- name: work\n  cluster: {server: 'https://example', extra: {deep: [1, \"on\"]}}\nusers:\n- name: work\n  user: {token: abc}\ncontexts:\n- name: work\n  context: {cluster: work, user: work}\n";

    #[test]
    fn others_stay_untouched_and_twice_is_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, OTHERS).unwrap();
        assert!(enter(&path, &entry()).unwrap());
        assert!(!enter(&path, &entry()).unwrap());
        let after = read(&path).unwrap().unwrap();
        assert_eq!(after["current-context"], "nemo.us-east-2");
        assert_eq!(after["clusters"][0]["cluster"], json!({"server": "https://example", "extra": {"deep": [1, "on"]}}));
        assert_eq!(after["users"][1]["user"]["exec"]["env"], json!([{"name": "AWS_PROFILE", "value": "no"}]));
        assert!(remove(&path, "nemo.us-east-2").unwrap());
        assert!(!remove(&path, "nemo.us-east-2").unwrap());
        let mut before: Value = serde_saphyr::from_str(OTHERS).unwrap();
        before["current-context"] = json!("");
        assert_eq!(read(&path).unwrap().unwrap(), before);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no lock and no temporary file is left");
    }

    #[test]
    fn an_entry_of_our_name_that_is_somebodys_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let text = OTHERS.replace("work", "nemo.us-east-2");
        std::fs::write(&path, &text).unwrap();
        let error = enter(&path, &entry()).unwrap_err();
        assert!(error.to_string().contains("nemo.us-east-2 that nemo did not make"), "{error}");
        assert!(!remove(&path, "nemo.us-east-2").unwrap());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }

    #[test]
    fn is_a_file_that_a_kubernetes_client_reads() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/config");
        assert!(enter(&path, &entry()).unwrap());
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let config = kube::config::Kubeconfig::read_from(&path).unwrap();
        assert_eq!(config.current_context.as_deref(), Some("nemo.us-east-2"));
        let user = config.auth_infos[0].auth_info.clone().unwrap();
        assert_eq!(user.exec.unwrap().command.as_deref(), Some("/usr/bin/nemo"));
    }

    #[test]
    fn what_is_no_kubeconfig_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        std::fs::write(&path, "clusters: [\n").unwrap();
        let error = enter(&path, &entry()).unwrap_err();
        assert!(error.to_string().contains("left as it is"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "clusters: [\n");
        std::fs::write(folder.path().join("config.lock"), "").unwrap();
        assert!(enter(&path, &entry()).unwrap_err().to_string().contains("somebody else"));
    }
}
