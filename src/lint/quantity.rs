//! Quantities of Kubernetes.

/// Thousandths: `48`, `95690m`, `1.5`.
pub fn milli(text: &str) -> Option<u64> {
    match text.strip_suffix('m') {
        Some(milli) => milli.parse().ok(),
        None => text.parse::<f64>().ok().filter(|cores| *cores >= 0.0).map(|cores| (cores * 1000.0).round() as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_is_read_as_kubernetes_writes_it() {
        assert_eq!([milli("48"), milli("95690m"), milli("1.5"), milli("8Gi")], [Some(48_000), Some(95_690), Some(1_500), None]);
    }
}
