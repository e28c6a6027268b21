//! What an exposed model opens.

use super::report::{Answered, Question};
use crate::config::{Expose, Spec};

/// `expose`; not asked where nothing is exposed.
pub(super) fn expose(spec: &Spec) -> Option<Answered> {
    let question = Question::new("expose");
    let place = match spec.serve.expose {
        Expose::No => return None,
        Expose::Internal => "a load balancer inside the VPC",
        Expose::Public => "a load balancer on the internet",
    };
    let cidrs = spec.allowed_cidrs();
    let answer = format!("{place}, by TLS and API key, from {}", cidrs.join(", "));
    let everybody = cidrs.iter().any(|cidr| cidr.ends_with("/0"));
    Some(match (everybody, spec.sees_pictures() && !spec.splits_by_vllm()) {
        (true, _) => question.warn(format!("{answer}: from everywhere"), "only the key keeps others out; serve.allowed_cidrs says which networks may connect"),
        (false, true) => {
            let why = format!("{answer}; Dynamo's workers fetch pictures from any public host that a request names");
            question.warn(why, "who holds the key can make them ask any public https address, and none inside the VPC; only vLLM's own servers (e-pd, e-p-d) know a list of hosts, serve.media_domains")
        }
        (false, false) => question.ok(answer),
    })
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;
    use crate::config::{Inputs, load};

    fn asked(flags: &[(&str, &str)]) -> Option<Answered> {
        let flags = flags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        expose(&load(&Inputs { working_folder: std::env::temp_dir().join("nowhere"), flags, ..Inputs::default() }).unwrap().0)
    }

    #[test]
    fn what_is_open_is_said() {
        assert_eq!(asked(&[]), None);
        let tls = ("serve.tls_secret", "t");
        let public = [("serve.expose", "public"), tls, ("serve.topology", "e-pd"), ("gpu.nodes", "2"), ("serve.media_domains", "images.example.com")];
        for (settings, verdict, words) in [
            ([&public[..], &[("serve.allowed_cidrs", "0.0.0.0/0")]].concat(), Verdict::Warn, "from everywhere"),
            ([&public[..], &[("serve.allowed_cidrs", "203.0.113.0/24")]].concat(), Verdict::Ok, "on the internet, by TLS and API key, from 203.0.113.0/24"),
            (vec![("serve.expose", "internal"), tls], Verdict::Warn, "any public host"),
        ] {
            let answered = asked(&settings).unwrap();
            assert_eq!(answered.verdict, verdict, "{}", answered.answer);
            assert!(answered.answer.contains(words), "{}", answered.answer);
        }
    }
}
