use super::*;

#[test]
fn a_fault_acts_after_its_skips_and_only_its_times() {
    let faults = Faults::default();
    faults.push(Fault::new(Action::DropAnswer).at(Site::Be).when("_Stream_Load").skip(1).times(2));
    let node = faults.of(NodeId::Be(0));
    let hit = |site, line| node.take_if(site, line, |_| true).is_some();
    assert!(!hit(Site::Fe, "PUT /api/d/t/_stream_load"));
    assert!(!hit(Site::Be, "PUT /api/d/t/_stream_load"));
    assert!(hit(Site::Be, "PUT /api/d/t/_stream_load"));
    assert!(!hit(Site::Be, "GET /api/health"));
    assert!(hit(Site::Be, "PUT /api/d/t/_stream_load"));
    assert!(!hit(Site::Be, "PUT /api/d/t/_stream_load"));
    assert_eq!(faults.armed(), 0);
    let uses = faults.applied();
    assert_eq!((uses.len(), uses[0].action, uses[0].node), (2, "drop_answer", NodeId::Be(0)));
    assert_eq!(uses[1].line, "put /api/d/t/_stream_load");
}

#[test]
fn a_fault_of_a_node_leaves_the_others_alone() {
    let faults = Faults::default();
    faults.push(Fault::new(Action::TokenGone).node(NodeId::Fe(1)).always());
    assert!(!faults.of(NodeId::Fe(0)).token_gone("DoGet"));
    assert!(faults.of(NodeId::Fe(1)).token_gone("DoGet"));
    assert!(faults.of(NodeId::Fe(1)).token_gone("DoGet"));
    assert_eq!(faults.list()[0].to_string(), "token_gone at fe1 always");
}

#[test]
fn hooks_take_only_what_they_can_perform() {
    let faults = Faults::default();
    faults.push(Fault::new(Action::FlightCutAfterBatches(2)));
    faults.push(Fault::new(Action::FlightErrorAfterBatches { batches: 1, message: "gone".to_owned() }));
    faults.push(Fault::new(Action::PublishTimeout));
    let node = faults.of(NodeId::Be(0));
    assert!(!node.token_gone("DoGet select"));
    let cut = node.stream_fault(Site::BeFlight, "DoGet select").unwrap();
    assert_eq!(cut, StreamFault { batches: 2, end: StreamEnd::Cut });
    let error = node.stream_fault(Site::BeFlight, "DoGet select").unwrap();
    assert_eq!(error.end, StreamEnd::Error("gone".to_owned()));
    assert_eq!(node.stream_fault(Site::BeFlight, "DoGet select"), None);
}

#[test]
fn nodes_and_sites_have_names() {
    for text in ["fe0", "be12"] {
        assert_eq!(text.parse::<NodeId>().unwrap().to_string(), text);
    }
    for text in ["", "fe", "x1", "bé", "fe-1"] {
        assert!(text.parse::<NodeId>().is_err(), "{text}");
    }
    assert_eq!("fe_flight".parse(), Ok(Site::FeFlight));
    assert!("flight".parse::<Site>().is_err());
}

#[test]
fn credentials_are_not_kept() {
    let requests = Requests::default();
    let headers = [("authorization", "Basic cm9vdDpwdw=="), ("token", "secret"), ("label", "a b")];
    let node = requests.of(NodeId::Fe(1));
    node.record(Site::Fe, "PUT", "/x", headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())));
    let seen = requests.all();
    assert_eq!(seen[0].header("authorization"), Some("Basic ***"));
    assert_eq!(seen[0].header("token"), Some("***"));
    assert_eq!(seen[0].header("label"), Some("a b"));
    assert_eq!(requests.at_node(NodeId::Fe(1)).len(), 1);
    assert_eq!(requests.at_node(NodeId::Fe(0)).len(), 0);
}

#[test]
fn what_became_of_a_request_is_noted_even_after_others() {
    let requests = Requests::default();
    let node = requests.of(NodeId::Be(0));
    let first = node.record(Site::Be, "PUT", "/a", std::iter::empty());
    let second = node.record(Site::Be, "PUT", "/b", std::iter::empty());
    node.read(first, 5);
    node.read(first, 6);
    node.met(second, &Action::DropAnswer);
    node.answered(first, 200);
    let seen = requests.all();
    assert_eq!((seen[0].order, seen[0].body_bytes, seen[0].status, seen[0].fault), (0, 11, Some(200), None));
    assert_eq!((seen[1].order, seen[1].status, seen[1].fault), (1, None, Some("drop_answer")));
    requests.clear();
    node.answered(second, 200);
    assert!(requests.all().is_empty());
    node.record(Site::Be, "PUT", "/c", std::iter::empty());
    assert_eq!(requests.all()[0].order, 2);
}
