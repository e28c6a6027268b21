//! A group of nodes failed together: which of them is it? Pairs are run until one node is left.

use serde::Serialize;

/// Nodes that are run together.
pub type Group = Vec<String>;

/// What the pairs have shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(tag = "is", rename_all = "kebab-case")]
pub enum Culprit {
    /// These fail with a node that is well: each of them is at fault.
    Nodes { nodes: Vec<String> },
    /// These two fail together, and each is well with others: what lies between them.
    Between { nodes: [String; 2] },
    /// No pair passes: a cause that all share, or so many faults that no node is known to be well.
    All,
    /// Every pair passes: it takes more of them to fail.
    NoPair,
}

/// Finds the node by running pairs of two nodes or more that failed together; `run` says whether a group passed. Of n nodes at most n/2 pairs are run at first, then one for each node under suspicion.
pub async fn bisect<E>(nodes: &[String], mut run: impl AsyncFnMut(&Group) -> Result<bool, E>) -> Result<Culprit, E> {
    let mut well: Vec<String> = Vec::new();
    let mut failed: Vec<[String; 2]> = Vec::new();
    for pair in nodes.chunks(2) {
        let [one, other] = pair else { continue };
        if run(&pair.to_vec()).await? { well.extend(pair.iter().cloned()) } else { failed.push([one.clone(), other.clone()]) }
    }
    // The odd one out has run with nobody yet.
    let odd = nodes.chunks(2).find_map(|rest| if let [odd] = rest { Some(odd.clone()) } else { None });
    let Some(good) = well.first().cloned() else { return without_a_good_one(nodes, &failed, run).await };
    let mut bad = Vec::new();
    let mut between = None;
    for [one, other] in failed {
        let mut found = Vec::new();
        for node in [&one, &other] {
            if !run(&vec![good.clone(), node.clone()]).await? {
                found.push(node.clone());
            }
        }
        if found.is_empty() {
            between = Some([one, other]);
        }
        bad.extend(found);
    }
    if let Some(odd) = odd
        && !run(&vec![good, odd.clone()]).await?
    {
        bad.push(odd);
    }
    Ok(match between {
        _ if !bad.is_empty() => Culprit::Nodes { nodes: bad },
        Some(nodes) => Culprit::Between { nodes },
        None => Culprit::NoPair,
    })
}

/// Every pair of the first round failed. Pairs across them may still pass: with one bad node of three, or of two pairs with a fault each.
async fn without_a_good_one<E>(nodes: &[String], failed: &[[String; 2]], mut run: impl AsyncFnMut(&Group) -> Result<bool, E>) -> Result<Culprit, E> {
    // All of these failed.
    let mut tried: Vec<[String; 2]> = failed.to_vec();
    for (at, one) in nodes.iter().enumerate() {
        for other in nodes.iter().skip(at + 1) {
            let pair = [one.clone(), other.clone()];
            if tried.contains(&pair) {
                continue;
            }
            if !run(&pair.to_vec()).await? {
                tried.push(pair);
                continue;
            }
            // Two that are well: all others are asked with the first of them.
            let mut bad = Vec::new();
            for node in nodes.iter().filter(|node| *node != one && *node != other) {
                // One that it has not failed with yet: what lies between two nodes is no fault of either.
                let partner = [one, other].into_iter().find(|good| !tried.iter().any(|pair| pair.contains(good) && pair.contains(node)));
                let passed = match partner {
                    Some(good) => run(&vec![good.clone(), node.clone()]).await?,
                    None => false,
                };
                if !passed {
                    bad.push(node.clone());
                }
            }
            return Ok(match failed.first() {
                _ if !bad.is_empty() => Culprit::Nodes { nodes: bad },
                Some(pair) => Culprit::Between { nodes: pair.clone() },
                None => Culprit::NoPair,
            });
        }
    }
    // Of two nodes there is no third to tell them apart by: each is run alone.
    if nodes.len() == 2 {
        let mut bad = Vec::new();
        for node in nodes {
            if !run(&vec![node.clone()]).await? {
                bad.push(node.clone());
            }
        }
        return Ok(match (bad.is_empty(), nodes) {
            (true, [one, other]) => Culprit::Between { nodes: [one.clone(), other.clone()] },
            _ => Culprit::Nodes { nodes: bad },
        });
    }
    Ok(Culprit::All)
}
