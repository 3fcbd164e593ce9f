//! A list of nodes with what is known of their health.

use parking_lot::Mutex;

/// Nodes in the order in which to try them: as configured, those that failed last.
///
/// A node that failed is put aside until every other one failed too, or until it answers again: a dead node costs
/// its connect timeout once, not at every call.
#[derive(Debug)]
pub(super) struct Endpoints {
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    address: String,
    failures: Mutex<u32>,
}

impl Endpoints {
    pub(super) fn new(addresses: &[String]) -> Self {
        let node = |address: &String| Node { address: address.clone(), failures: Mutex::new(0) };
        Self { nodes: addresses.iter().map(node).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Every node once, the healthiest first; equal ones in configured order.
    pub(super) fn in_order(&self) -> Vec<String> {
        let mut nodes: Vec<(u32, &str)> =
            self.nodes.iter().map(|node| (*node.failures.lock(), node.address.as_str())).collect();
        nodes.sort_by_key(|(failures, _)| *failures);
        nodes.into_iter().map(|(_, address)| address.to_string()).collect()
    }

    pub(super) fn failed(&self, address: &str) {
        if let Some(node) = self.find(address) {
            let mut failures = node.failures.lock();
            *failures = failures.saturating_add(1);
        }
    }

    pub(super) fn answered(&self, address: &str) {
        if let Some(node) = self.find(address) {
            *node.failures.lock() = 0;
        }
    }

    fn find(&self, address: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.address == address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_node_is_tried_last_until_it_answers() {
        let nodes = Endpoints::new(&["a:1".to_string(), "b:1".to_string(), "c:1".to_string()]);
        nodes.failed("a:1");
        assert_eq!(nodes.in_order(), ["b:1", "c:1", "a:1"]);
        nodes.failed("b:1");
        nodes.failed("b:1");
        assert_eq!(nodes.in_order(), ["c:1", "a:1", "b:1"]);
        nodes.answered("a:1");
        assert_eq!(nodes.in_order(), ["a:1", "c:1", "b:1"]);
    }
}
