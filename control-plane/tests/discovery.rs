//! Policy discovery without sockets: the five cases of a request, and every row of the protocol's table of edge cases.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

use postern::discovery::{
    Answer, PolicySet, Registry, Session, Ticket,
    session::{Case, Request, Update},
};
use postern_proto::discovery::v1::Policy;

/// A control plane: what all streams of it have in common.
struct ControlPlane {
    registry: Registry<&'static str>,
    now: Instant,
}

impl ControlPlane {
    fn started() -> Self {
        Self { registry: Registry::default(), now: Instant::now() }
    }

    fn with(policies: &[&str]) -> Self {
        let mut control_plane = Self::started();
        control_plane.publish(policies);
        control_plane
    }

    fn publish(&mut self, policies: &[&str]) {
        self.registry.publish(&Arc::new(set(policies)), clock());
    }

    fn current(&self) -> Arc<Update> {
        Arc::clone(self.registry.current().unwrap())
    }

    fn connect(&mut self, address: &str) -> Client {
        let (ticket, _) = self.registry.connect(address, self.now, "cut");
        Client { ticket, session: Session::default() }
    }

    /// A client that has applied everything so far.
    fn connect_in_sync(&mut self, address: &str) -> Client {
        let mut client = self.connect(address);
        assert!(self.ask(&mut client, &empty()).is_some());
        assert!(self.ask(&mut client, &ack(&self.current())).is_none());
        client
    }

    /// What a client is sent for a request.
    fn ask(&mut self, client: &mut Client, request: &Request) -> Option<Arc<Update>> {
        let current = self.registry.current().cloned();
        let reaction = client.session.on_request(request.clone(), current.as_ref());
        if let Some(answer) = reaction.answer {
            self.registry.answered(&client.ticket, &current.unwrap().nonce, answer);
        }
        reaction.response
    }

    /// What a client is sent because of a change.
    fn push(&mut self, client: &mut Client) -> Option<Arc<Update>> {
        let current = self.current();
        let reaction = client.session.on_update(&current);
        if let Some(answer) = reaction.answer {
            self.registry.answered(&client.ticket, &current.nonce, answer);
        }
        reaction.response
    }

    fn answer_of(&self, client: &Client) -> Option<Answer> {
        let report = self.registry.report().into_iter().find(|report| report.address == client.ticket.address());
        report.unwrap().answer
    }
}

/// A clock that every control plane reads, and that goes on each time.
fn clock() -> SystemTime {
    static SECONDS: AtomicU64 = AtomicU64::new(0);
    SystemTime::UNIX_EPOCH + Duration::from_secs(SECONDS.fetch_add(1, Ordering::Relaxed))
}

struct Client {
    ticket: Ticket,
    session: Session,
}

fn set(names: &[&str]) -> PolicySet {
    let policy =
        |name: &&str| Policy { name: (*name).to_owned(), kind: "RoutePolicy".to_owned(), spec: "{}".to_owned() };
    PolicySet::new(names.iter().map(policy).collect(), b"plan".to_vec().into())
}

fn request(version: &str, nonce: &str, error: Option<&str>) -> Request {
    Request { version: version.to_owned(), nonce: nonce.to_owned(), error: error.map(str::to_owned) }
}

fn empty() -> Request {
    Request::default()
}

fn ack(update: &Update) -> Request {
    request(update.version().as_str(), &update.nonce, None)
}

fn nack(update: &Update, stays_with: &str) -> Request {
    request(stays_with, &update.nonce, Some("it does not compile"))
}

fn refused() -> Option<Answer> {
    Some(Answer::Refused("it does not compile".to_owned()))
}

fn names(update: &Update) -> Vec<&str> {
    update.set.policies().iter().map(|policy| policy.name.as_str()).collect()
}

// 1. ACK: successful application

#[test]
fn case_1_an_ack_is_recorded_and_gets_no_response() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    assert_eq!(Case::of(&ack(&update), &update), Case::Ack);
    assert!(!control_plane.registry.all_acked());
    assert!(control_plane.ask(&mut client, &ack(&update)).is_none());
    assert_eq!(control_plane.answer_of(&client), Some(Answer::Accepted));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn case_1_all_connected_clients_must_ack() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut clients = ["one", "two", "three"].map(|address| control_plane.connect(address));
    for client in &mut clients {
        assert!(!control_plane.registry.all_acked());
        let update = control_plane.ask(client, &empty()).unwrap();
        control_plane.ask(client, &ack(&update));
    }
    assert!(control_plane.registry.all_acked());
}

#[test]
fn case_1_an_ack_without_a_pending_version_is_ignored() {
    let mut control_plane = ControlPlane::started();
    let client = control_plane.connect("one");
    control_plane.registry.answered(&client.ticket, "1", Answer::Accepted);
    assert_eq!(control_plane.answer_of(&client), None);
    assert!(!control_plane.registry.all_acked(), "nothing is in force that could be acknowledged");
}

#[test]
fn case_1_duplicate_acks_count_once() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut one = control_plane.connect_in_sync("one");
    let mut two = control_plane.connect("two");
    let update = control_plane.current();
    for _ in 0..3 {
        assert!(control_plane.ask(&mut one, &ack(&update)).is_none());
        assert!(!control_plane.registry.all_acked(), "the other has not answered");
    }
    control_plane.ask(&mut two, &empty());
    control_plane.ask(&mut two, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn case_1_a_client_that_vanished_counts_until_cleanup() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let _one = control_plane.connect_in_sync("one");
    let vanished = control_plane.connect("vanished");
    assert!(!control_plane.registry.all_acked());
    control_plane.registry.disconnect(&vanished.ticket);
    assert!(control_plane.registry.all_acked());
}

// 2. NACK: failed application

#[test]
fn case_2_a_nack_is_recorded_with_its_error_and_not_retried() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    let nack = nack(&update, "");
    assert_eq!(Case::of(&nack, &update), Case::Nack("it does not compile".to_owned()));
    assert!(control_plane.ask(&mut client, &nack).is_none());
    assert_eq!(control_plane.answer_of(&client), refused());
    assert!(control_plane.push(&mut client).is_none(), "no retry");
}

#[test]
fn case_2_a_nack_unblocks_who_waits_for_all() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut good = control_plane.connect("good");
    let mut bad = control_plane.connect("bad");
    let update = control_plane.ask(&mut good, &empty()).unwrap();
    control_plane.ask(&mut bad, &empty());
    control_plane.ask(&mut bad, &nack(&update, ""));
    assert!(!control_plane.registry.all_acked());
    control_plane.ask(&mut good, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn case_2_a_nack_affects_only_its_client() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let good = control_plane.connect_in_sync("good");
    let mut bad = control_plane.connect("bad");
    let update = control_plane.ask(&mut bad, &empty()).unwrap();
    control_plane.ask(&mut bad, &nack(&update, ""));
    assert_eq!(control_plane.answer_of(&good), Some(Answer::Accepted));
    assert_eq!(control_plane.answer_of(&bad), refused());
    assert_eq!(control_plane.current().version(), update.version(), "the version stays in force");
}

// 3. Stale nonce: missed update

#[test]
fn case_3_a_stale_nonce_gets_the_full_snapshot() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let old = control_plane.current();
    control_plane.publish(&["a", "b"]);
    assert_eq!(Case::of(&ack(&old), &control_plane.current()), Case::StaleNonce);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &ack(&old)).unwrap();
    assert_eq!(names(&update), ["a", "b"]);
    assert_eq!(control_plane.answer_of(&client), None, "an answer to an earlier version is none to this one");
}

#[test]
fn case_3_a_restarted_control_plane_has_another_nonce_for_the_same_version() {
    let before = ControlPlane::with(&["a"]).current();
    let mut restarted = ControlPlane::with(&["a"]);
    assert_eq!(restarted.current().version(), before.version());
    assert_ne!(restarted.current().nonce, before.nonce);
    let mut client = restarted.connect("one");
    let update = restarted.ask(&mut client, &ack(&before)).unwrap();
    assert_eq!(update.version(), before.version());
}

#[test]
fn case_3_a_client_that_asks_with_the_same_stale_nonce_again_is_sent_the_snapshot_again() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    let old = control_plane.current();
    control_plane.publish(&["b"]);
    assert!(control_plane.push(&mut client).is_some());
    // It has acknowledged that one before, so that this is no late answer.
    assert!(control_plane.ask(&mut client, &ack(&old)).is_some());
    assert!(control_plane.ask(&mut client, &ack(&old)).is_some());
}

#[test]
fn case_3_an_ack_that_crossed_a_newer_update_does_not_have_it_sent_twice() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let first = control_plane.ask(&mut client, &empty()).unwrap();
    control_plane.publish(&["b"]);
    let second = control_plane.push(&mut client).unwrap();
    assert!(control_plane.ask(&mut client, &ack(&first)).is_none());
    assert_eq!(control_plane.answer_of(&client), None);
    assert!(control_plane.ask(&mut client, &ack(&second)).is_none());
    assert_eq!(control_plane.answer_of(&client), Some(Answer::Accepted));
}

// 4. Initial connection: empty state

#[test]
fn case_4_an_empty_state_gets_the_full_snapshot() {
    let mut control_plane = ControlPlane::with(&["b", "a"]);
    let mut client = control_plane.connect("one");
    assert_eq!(Case::of(&empty(), &control_plane.current()), Case::Initial);
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    assert_eq!(names(&update), ["a", "b"]);
    assert_eq!(update.version(), set(&["a", "b"]).version());
}

#[test]
fn case_4_a_client_that_lost_its_state_gets_it_again_on_the_same_stream_and_on_another() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    assert!(control_plane.ask(&mut client, &empty()).is_some());
    let mut restarted = control_plane.connect("one");
    assert!(control_plane.ask(&mut restarted, &empty()).is_some());
}

// 5. No update required

#[test]
fn case_5_a_client_that_has_the_version_in_force_gets_nothing() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let current = control_plane.current();
    let by_version = request(current.version().as_str(), "", None);
    assert_eq!(Case::of(&by_version, &current), Case::NoUpdate);
    assert!(control_plane.ask(&mut client, &by_version).is_none());
    assert!(control_plane.push(&mut client).is_none());
    assert!(control_plane.registry.all_acked(), "nobody waits for a client that has it");
}

#[test]
fn case_5_unmatched_versions_and_nonces_get_nothing() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    let current = control_plane.current();
    for request in
        [request("other", "", None), request("other", &current.nonce, None), request("", &current.nonce, None)]
    {
        assert_eq!(Case::of(&request, &current), Case::NoUpdate, "{request:?}");
        assert!(control_plane.ask(&mut client, &request).is_none(), "{request:?}");
    }
}

#[test]
fn case_5_a_stream_that_begins_with_another_version_is_pushed_the_one_in_force() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &request(set(&["old"]).version().as_str(), "", None)).unwrap();
    assert_eq!(names(&update), ["a"]);
}

// Versions and updates

#[test]
fn versions_depend_on_content_alone() {
    assert_eq!(set(&["a", "b"]).version(), set(&["b", "a"]).version());
    assert_ne!(set(&["a", "b"]).version(), set(&["a"]).version());
    assert_ne!(set(&["ab"]).version(), set(&["a", "b"]).version());
    let other_plan = PolicySet::new(set(&["a"]).policies().to_vec(), b"another plan".to_vec().into());
    assert_ne!(set(&["a"]).version(), other_plan.version());
}

#[test]
fn an_update_is_pushed_without_being_asked_for() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    control_plane.publish(&["a", "b"]);
    assert!(!control_plane.registry.all_acked());
    assert_eq!(names(&control_plane.push(&mut client).unwrap()), ["a", "b"]);
    assert!(control_plane.push(&mut client).is_none(), "once");
}

#[test]
fn a_deleted_policy_is_missing_from_the_next_snapshot() {
    let mut control_plane = ControlPlane::with(&["a", "b"]);
    let mut client = control_plane.connect_in_sync("one");
    control_plane.publish(&["b"]);
    assert_eq!(names(&control_plane.push(&mut client).unwrap()), ["b"]);
}

#[test]
fn the_same_policies_again_are_no_update() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect_in_sync("one");
    let before = control_plane.current();
    control_plane.publish(&["a"]);
    assert_eq!(control_plane.current().nonce, before.nonce);
    assert_eq!(control_plane.answer_of(&client), Some(Answer::Accepted));
}

// Edge cases and scenarios, row by row

#[test]
fn network_partition_a_request_with_an_old_nonce_gets_the_snapshot_again() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect_in_sync("one");
    let old = control_plane.current();
    // The stream breaks on one side first, and the update never arrives.
    drop(client);
    control_plane.publish(&["b"]);
    let mut back = control_plane.connect("one");
    assert_eq!(names(&control_plane.ask(&mut back, &ack(&old)).unwrap()), ["b"]);
}

#[test]
fn client_restarts_during_update_and_gets_a_full_snapshot_even_if_it_acks_its_old_state() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect_in_sync("one");
    let old = control_plane.current();
    control_plane.publish(&["b"]);
    control_plane.registry.disconnect(&client.ticket);
    let mut restarted = control_plane.connect("one");
    let update = control_plane.ask(&mut restarted, &empty()).unwrap();
    assert_eq!(names(&update), ["b"]);
    assert!(control_plane.ask(&mut restarted, &ack(&old)).is_some(), "its old state is not the one in force");
    assert_eq!(control_plane.answer_of(&restarted), None);
    control_plane.ask(&mut restarted, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn control_plane_restarts_during_update_and_clients_get_the_latest_version() {
    let mut before = ControlPlane::with(&["a"]);
    let _client = before.connect_in_sync("one");
    before.publish(&["b"]);
    drop(before);
    let mut restarted = ControlPlane::with(&["b"]);
    let mut client = restarted.connect("one");
    let update = restarted.ask(&mut client, &empty()).unwrap();
    assert_eq!(names(&update), ["b"]);
    restarted.ask(&mut client, &ack(&update));
    assert!(restarted.registry.all_acked());
}

#[test]
fn rapid_sequential_updates_leave_the_latest_pending_and_earlier_acks_are_ignored() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut client = control_plane.connect_in_sync("one");
    let mut sent = Vec::new();
    for policies in [["b"], ["c"], ["d"]] {
        control_plane.publish(&policies);
        sent.push(control_plane.push(&mut client).unwrap());
    }
    for earlier in &sent[..2] {
        assert!(control_plane.ask(&mut client, &ack(earlier)).is_none());
        assert!(!control_plane.registry.all_acked());
    }
    control_plane.ask(&mut client, &ack(&sent[2]));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn empty_policy_set_is_sent_as_an_empty_snapshot() {
    let mut control_plane = ControlPlane::with(&[]);
    let mut client = control_plane.connect("one");
    let update = control_plane.ask(&mut client, &empty()).unwrap();
    assert_eq!(names(&update), Vec::<&str>::new());
    assert!(!update.version().as_str().is_empty());
    control_plane.ask(&mut client, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn stream_errors_remove_the_client_and_its_next_stream_starts_anew() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect_in_sync("one");
    control_plane.registry.disconnect(&client.ticket);
    assert_eq!(control_plane.registry.report(), []);
    let mut again = control_plane.connect("one");
    assert_eq!(control_plane.answer_of(&again), None, "what it said before is forgotten");
    assert!(control_plane.ask(&mut again, &empty()).is_some());
}

#[test]
fn client_nacks_update_and_is_done_without_a_retry_while_the_next_update_reaches_it() {
    let mut control_plane = ControlPlane::with(&["good"]);
    let mut client = control_plane.connect_in_sync("one");
    let good = control_plane.current();
    control_plane.publish(&["bad"]);
    let bad = control_plane.push(&mut client).unwrap();
    assert!(control_plane.ask(&mut client, &nack(&bad, good.version().as_str())).is_none());
    assert!(control_plane.registry.all_acked());
    assert_eq!(control_plane.answer_of(&client), refused());
    control_plane.publish(&["mended"]);
    assert_eq!(names(&control_plane.push(&mut client).unwrap()), ["mended"]);
}

/// The protocol allows an empty snapshot here. We do not send it: it would say that nothing is guarded.
#[test]
fn early_connection_before_policies_are_loaded_is_answered_when_they_are() {
    let mut control_plane = ControlPlane::started();
    let mut client = control_plane.connect("one");
    assert!(control_plane.ask(&mut client, &empty()).is_none());
    assert!(!control_plane.registry.all_acked());
    control_plane.publish(&["a"]);
    assert_eq!(names(&control_plane.push(&mut client).unwrap()), ["a"]);
}

#[test]
fn concurrent_policy_version_changes_leave_every_client_on_the_latest() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut clients = ["one", "two"].map(|address| control_plane.connect_in_sync(address));
    control_plane.publish(&["b"]);
    assert!(control_plane.push(&mut clients[0]).is_some(), "one sees the version in between, the other does not");
    control_plane.publish(&["c"]);
    for client in &mut clients {
        let update = control_plane.push(client).unwrap();
        assert_eq!(names(&update), ["c"]);
        control_plane.ask(client, &ack(&update));
    }
    assert!(control_plane.registry.all_acked());
}

#[test]
fn pod_restart_after_partial_ack_triggers_a_full_resync() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let mut one = control_plane.connect_in_sync("one");
    let two = control_plane.connect_in_sync("two");
    control_plane.publish(&["b"]);
    let update = control_plane.push(&mut one).unwrap();
    control_plane.ask(&mut one, &ack(&update));
    control_plane.registry.disconnect(&two.ticket);
    assert!(control_plane.registry.all_acked(), "who is gone is not waited for");
    let mut two = control_plane.connect("two");
    assert!(!control_plane.registry.all_acked());
    assert_eq!(names(&control_plane.ask(&mut two, &empty()).unwrap()), ["b"]);
    control_plane.ask(&mut two, &ack(&update));
    assert!(control_plane.registry.all_acked());
}

#[test]
fn leader_election_a_client_that_reconnects_to_another_replica_keeps_its_version() {
    let mut leader = ControlPlane::with(&["a"]);
    let _client = leader.connect_in_sync("one");
    let old = leader.current();
    drop(leader);
    let mut successor = ControlPlane::with(&["a"]);
    let mut client = successor.connect("one");
    // With a nonce of the old leader, it is brought up to date; with the version alone, it is known to be.
    assert_eq!(successor.ask(&mut client, &ack(&old)).unwrap().version(), old.version());
    let mut client = successor.connect("two");
    assert!(successor.ask(&mut client, &request(old.version().as_str(), "", None)).is_none());
}

// Health checks

#[test]
fn a_health_check_keeps_a_client_and_silence_flushes_it() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let longest = Duration::from_secs(60);
    let checked = control_plane.connect_in_sync("checked");
    let _silent = control_plane.connect("silent");
    let later = control_plane.now + Duration::from_secs(50);
    assert!(control_plane.registry.health_check("checked", later));
    assert_eq!(control_plane.registry.flush(control_plane.now + longest, longest), [], "not longer than that");
    let flushed = control_plane.registry.flush(later + Duration::from_secs(20), longest);
    assert_eq!(flushed, [("silent".to_owned(), "cut")]);
    assert!(control_plane.registry.all_acked(), "nobody waits for a client that was flushed");
    let report = control_plane.registry.report();
    assert_eq!(report.len(), 1);
    assert_eq!((report[0].address.as_str(), report[0].last_health_check), (checked.ticket.address(), Some(later)));
}

#[test]
fn a_request_counts_as_a_sign_of_life() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let client = control_plane.connect("one");
    let later = control_plane.now + Duration::from_secs(50);
    control_plane.registry.active(&client.ticket, later);
    assert_eq!(control_plane.registry.flush(later + Duration::from_secs(20), Duration::from_secs(60)), []);
}

#[test]
fn a_health_check_of_a_client_without_a_stream_says_so() {
    let mut control_plane = ControlPlane::with(&["a"]);
    assert!(!control_plane.registry.health_check("unknown", control_plane.now));
    assert_eq!(control_plane.registry.report(), []);
}

#[test]
fn a_second_stream_of_a_client_takes_the_place_of_the_first() {
    let mut control_plane = ControlPlane::with(&["a"]);
    let first = control_plane.connect_in_sync("one");
    let (second, cut) = control_plane.registry.connect("one", control_plane.now, "another cut");
    assert_eq!(cut, Some("cut"));
    control_plane.registry.disconnect(&first.ticket);
    assert_eq!(control_plane.registry.report().len(), 1, "the end of the first is not the end of the second");
    control_plane.registry.answered(&first.ticket, &control_plane.current().nonce, Answer::Accepted);
    assert!(!control_plane.registry.all_acked(), "the first speaks for nobody any more");
    control_plane.registry.disconnect(&second);
    assert_eq!(control_plane.registry.report(), []);
}
