//! The path of a field as findings name it: `spec.containers[0].resources.limits["nvidia.com/gpu"]`.

/// A field of the mapping at `parent`.
pub fn field(parent: &str, key: &str) -> String {
    let word = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    match (parent, word) {
        ("", true) => key.to_owned(),
        (_, true) => format!("{parent}.{key}"),
        (_, false) => format!("{parent}[{key:?}]"),
    }
}

/// An item of the list at `parent`.
pub fn item(parent: &str, index: usize) -> String {
    format!("{parent}[{index}]")
}

/// The path of what holds this; none above the root.
pub fn parent(path: &str) -> Option<&str> {
    if path.is_empty() {
        return None;
    }
    if path.ends_with("\"]") {
        return Some(&path[..path.rfind("[\"").unwrap_or(0)]);
    }
    Some(&path[..path.rfind(['.', '[']).unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_built_and_taken_apart() {
        let path = field(&item(&field("spec", "containers"), 0), "nvidia.com/gpu");
        assert_eq!(path, "spec.containers[0][\"nvidia.com/gpu\"]");
        assert_eq!(parent(&path), Some("spec.containers[0]"));
        assert_eq!(parent("spec.containers[0]"), Some("spec.containers"));
        assert_eq!(parent("spec"), Some(""));
        assert_eq!(parent(""), None);
    }
}
