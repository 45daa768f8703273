//! Rollouts: which node gets what, when it goes on, and when it goes back.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "test code")]

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use postern_base::node::NodeIdentity;
use postern_release::rollout::{
    ATTEMPTS, Change, DEPARTED, GRACE, GRACE_AFTER_RESTART, LONGEST_SETBACK, Observed, Pick, Rollout, Standing, State,
    Step, Strategy, Tolerance,
};

fn at(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

fn node(id: &str) -> NodeIdentity {
    NodeIdentity { id: id.to_owned(), ..NodeIdentity::default() }
}

fn tagged(id: &str, tag: &str, value: &str) -> NodeIdentity {
    NodeIdentity { tags: BTreeMap::from([(tag.to_owned(), value.to_owned())]), ..node(id) }
}

/// A simulated fleet.
struct Fleet(Vec<Observed>);

impl Fleet {
    fn of(names: &[&str]) -> Self {
        let observed = |id: &&str| Observed { node: Arc::new(node(id)), connected: true, standing: Standing::Pending };
        Self(names.iter().map(observed).collect())
    }

    fn with(mut self, node: NodeIdentity) -> Self {
        self.join(node);
        self
    }

    fn join(&mut self, node: NodeIdentity) {
        self.0.push(Observed { node: Arc::new(node), connected: true, standing: Standing::Pending });
    }

    fn get(&mut self, id: &str) -> &mut Observed {
        self.0.iter_mut().find(|observed| observed.node.id == id).unwrap()
    }

    fn nack(&mut self, id: &str) {
        self.get(id).standing = Standing::Nacked("it is odd".to_owned());
    }

    fn leave(&mut self, id: &str) {
        self.get(id).connected = false;
    }

    fn come_back(&mut self, id: &str) {
        self.get(id).connected = true;
    }

    /// Every node that is to run the candidate acknowledges it.
    fn ack(&mut self, rollout: &Rollout) {
        for observed in self.0.iter_mut().filter(|observed| observed.connected) {
            if rollout.revision_for(&observed.node) == rollout.candidate() {
                observed.standing = Standing::Acked;
            }
        }
    }

    fn on_candidate(&self, rollout: &Rollout) -> Vec<&str> {
        let on = self.0.iter().filter(|observed| rollout.revision_for(&observed.node) == rollout.candidate());
        on.map(|observed| observed.node.id.as_str()).collect()
    }
}

fn share(share: u8, pause: u64) -> Step {
    Step { nodes: Pick::Share(share), pause: Duration::from_secs(pause) }
}

fn canary(steps: &[Step]) -> Rollout {
    Rollout::start(2, Some(1), Strategy::Canary(steps.to_vec()))
}

fn all_at_once() -> Rollout {
    Rollout::start(2, Some(1), Strategy::AllAtOnce)
}

const FOUR: [&str; 4] = ["a", "b", "c", "d"];

#[test]
fn gives_all_nodes_the_new_revision_at_once_and_completes_when_all_run_it() {
    let (mut rollout, mut fleet) = (all_at_once(), Fleet::of(&FOUR));
    assert_eq!(fleet.on_candidate(&rollout), FOUR);
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::None, "nobody has answered");
    assert_eq!((rollout.state(), rollout.last_good()), (&State::Progressing, Some(1)));
    fleet.get("a").standing = Standing::Acked;
    assert_eq!(rollout.observe(&fleet.0, at(1)), Change::None);
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(2)), Change::Ended);
    assert_eq!((rollout.state(), rollout.last_good()), (&State::Completed, Some(2)));
    assert_eq!(rollout.observe(&fleet.0, at(3)), Change::None, "what is over stays over");
}

#[test]
fn completes_for_no_empty_fleet() {
    let mut rollout = all_at_once();
    assert_eq!(rollout.observe(&[], at(0)), Change::None);
    let mut fleet = Fleet::of(&["a"]);
    fleet.leave("a");
    assert_eq!(rollout.observe(&fleet.0, at(100)), Change::None);
    fleet.come_back("a");
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(200)), Change::Ended);
}

#[test]
fn rolls_back_at_the_first_nack() {
    let (mut rollout, mut fleet) = (all_at_once(), Fleet::of(&FOUR));
    fleet.ack(&rollout);
    fleet.nack("c");
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::Ended);
    let expect = State::RolledBack { node: "c".to_owned(), reason: "it is odd".to_owned() };
    assert_eq!((rollout.state(), rollout.last_good()), (&expect, Some(1)));
    assert_eq!(fleet.on_candidate(&rollout), [""; 0]);
    assert_eq!(rollout.revision_for(&node("new")), 1, "new nodes never get what was refused");
}

#[test]
fn takes_a_canary_step_by_step() {
    let (mut rollout, mut fleet) = (canary(&[share(25, 60), share(50, 0)]), Fleet::of(&FOUR));
    assert_eq!(fleet.on_candidate(&rollout), [""; 0], "the first look chooses");
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::Spread);
    assert_eq!((fleet.on_candidate(&rollout).len(), rollout.progress()), (1, (1, 3)));
    assert_eq!(rollout.observe(&fleet.0, at(1)), Change::None, "it has not answered");
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(10)), Change::None, "the pause begins");
    assert_eq!(rollout.observe(&fleet.0, at(69)), Change::None);
    let first = fleet.on_candidate(&rollout)[0].to_owned();
    assert_eq!(rollout.observe(&fleet.0, at(70)), Change::Spread);
    assert_eq!(rollout.observe(&fleet.0, at(70)), Change::Spread, "the second step chooses");
    let two = fleet.on_candidate(&rollout).into_iter().map(str::to_owned).collect::<Vec<_>>();
    assert!(two.len() == 2 && two.contains(&first), "{two:?} with {first}");
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(71)), Change::Spread);
    assert_eq!((fleet.on_candidate(&rollout).len(), rollout.progress()), (4, (3, 3)));
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(72)), Change::Ended);
    assert_eq!(rollout.state(), &State::Completed);
}

#[test]
fn leaves_all_others_untouched_when_the_canary_refuses() {
    let (mut rollout, mut fleet) = (canary(&[share(25, 60)]), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    let first = fleet.on_candidate(&rollout)[0].to_owned();
    fleet.nack(&first);
    assert_eq!(rollout.observe(&fleet.0, at(1)), Change::Ended);
    assert_eq!(fleet.on_candidate(&rollout), [""; 0]);
    assert!(matches!(rollout.state(), State::RolledBack { node, .. } if *node == first));
}

#[test]
fn rolls_back_when_a_node_of_the_canary_goes_away_but_not_when_its_stream_breaks() {
    let (mut rollout, mut fleet) = (canary(&[share(25, 600)]), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    let first = fleet.on_candidate(&rollout)[0].to_owned();
    fleet.ack(&rollout);
    rollout.observe(&fleet.0, at(1));
    fleet.leave(&first);
    assert_eq!(rollout.observe(&fleet.0, at(10)), Change::None);
    fleet.come_back(&first);
    assert_eq!(rollout.observe(&fleet.0, at(11)), Change::None);
    fleet.leave(&first);
    assert_eq!(rollout.observe(&fleet.0, at(20)), Change::None, "counted from here on");
    assert_eq!(rollout.observe(&fleet.0, at(20) + GRACE - Duration::from_millis(1)), Change::None);
    assert_eq!(rollout.observe(&fleet.0, at(20) + GRACE), Change::Ended);
    let expect = State::RolledBack { node: first, reason: "it went away".to_owned() };
    assert_eq!(rollout.state(), &expect);
}

#[test]
fn counts_no_node_that_was_never_there_as_gone() {
    let mut fleet = Fleet::of(&["a"]).with(tagged("away", "stage", "canary")).with(tagged("here", "stage", "canary"));
    fleet.leave("away");
    let nodes = Pick::Tags(BTreeMap::from([("stage".to_owned(), "canary".to_owned())]));
    let mut rollout = canary(&[Step { nodes, pause: Duration::ZERO }]);
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::Spread);
    assert_eq!(rollout.observe(&fleet.0, at(1_000)), Change::None);
    assert_eq!(rollout.state(), &State::Progressing);
}

#[test]
fn gives_new_nodes_the_last_good_revision_unless_they_are_of_the_canary() {
    let nodes = Pick::Tags(BTreeMap::from([("stage".to_owned(), "canary".to_owned())]));
    let mut rollout = canary(&[Step { nodes, pause: Duration::ZERO }]);
    let mut fleet = Fleet::of(&["a", "b"]);
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::None, "a step that has no nodes waits");
    assert_eq!(rollout.observe(&fleet.0, at(100)), Change::None);
    fleet.join(tagged("c", "stage", "canary"));
    fleet.join(tagged("d", "stage", "production"));
    assert_eq!(rollout.observe(&fleet.0, at(101)), Change::Spread);
    assert_eq!(fleet.on_candidate(&rollout), ["c"]);
    fleet.join(tagged("e", "stage", "canary"));
    assert_eq!(fleet.on_candidate(&rollout), ["c", "e"], "tags count for nodes that come later too");
    fleet.get("c").standing = Standing::Acked;
    assert_eq!(rollout.observe(&fleet.0, at(102)), Change::None, "and they are waited for");
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(103)), Change::Spread);
    assert_eq!(fleet.on_candidate(&rollout).len(), 5);
}

#[test]
fn gives_a_node_that_joins_during_a_share_the_last_good_revision() {
    let (mut rollout, mut fleet) = (canary(&[share(50, 60)]), Fleet::of(&["a", "b"]));
    rollout.observe(&fleet.0, at(0));
    for name in ["c", "d", "e", "f", "g", "h"] {
        fleet.join(node(name));
    }
    rollout.observe(&fleet.0, at(1));
    assert_eq!(fleet.on_candidate(&rollout).len(), 1, "those that were chosen stay the only ones");
}

#[test]
fn rounds_shares_up() {
    for (nodes, percent, expect) in [(1, 1, 1), (4, 25, 1), (4, 26, 2), (3, 50, 2), (4, 100, 4), (200, 1, 2)] {
        let names: Vec<_> = (0..nodes).map(|number| format!("node-{number}")).collect();
        let fleet = Fleet::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let mut rollout = canary(&[share(percent, 60)]);
        rollout.observe(&fleet.0, at(0));
        assert_eq!(fleet.on_candidate(&rollout).len(), expect, "{percent} % of {nodes}");
    }
}

#[test]
fn pauses_resumes_and_aborts() {
    let (mut rollout, mut fleet) = (canary(&[share(25, 0)]), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    rollout.pause().unwrap();
    assert_eq!(rollout.pause().unwrap_err().to_string(), "the rollout of revision 2 is paused");
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(100)), Change::None, "it goes no further");
    assert_eq!(fleet.on_candidate(&rollout).len(), 1, "and not back either");
    rollout.resume().unwrap();
    assert_eq!(rollout.observe(&fleet.0, at(101)), Change::Spread);
    assert_eq!(rollout.abort().unwrap(), Change::Ended);
    assert_eq!((rollout.state(), fleet.on_candidate(&rollout).len()), (&State::Aborted, 0));
    assert_eq!(rollout.resume().unwrap_err().to_string(), "the rollout of revision 2 is aborted");
    assert!(rollout.abort().is_err());
}

#[test]
fn goes_back_by_itself_while_it_is_paused() {
    let (mut rollout, mut fleet) = (canary(&[share(25, 0)]), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    rollout.pause().unwrap();
    let first = fleet.on_candidate(&rollout)[0].to_owned();
    fleet.nack(&first);
    assert_eq!(rollout.observe(&fleet.0, at(1)), Change::Ended);
}

#[test]
fn has_nothing_to_go_back_to_at_first() {
    let mut rollout = Rollout::start(1, None, Strategy::Canary(vec![share(25, 60)]));
    let mut fleet = Fleet::of(&FOUR);
    assert_eq!(fleet.on_candidate(&rollout), FOUR, "a canary needs something to fall back on");
    fleet.nack("a");
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::None);
    let error = rollout.abort().unwrap_err().to_string();
    assert_eq!(error, "the rollout of revision 1 is the first one: there is nothing to go back to");
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(1)), Change::Ended);
    assert_eq!(rollout.last_good(), Some(1));
}

#[test]
fn goes_on_where_it_was_after_a_restart() {
    let (mut rollout, mut fleet) = (canary(&[share(25, 60)]), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    let before: Vec<_> = fleet.on_candidate(&rollout).into_iter().map(str::to_owned).collect();
    let kept = serde_json::to_vec(&rollout).unwrap();
    let mut rollout: Rollout = serde_json::from_slice(&kept).unwrap();
    assert_eq!(fleet.on_candidate(&rollout), before);
    fleet.ack(&rollout);
    rollout.observe(&fleet.0, at(1));
    assert_eq!(rollout.observe(&fleet.0, at(61)), Change::Spread);
}

#[test]
fn does_not_wait_for_ever_for_a_node_of_the_canary_that_vanished_with_the_control_plane() {
    let (mut rollout, mut fleet) = (canary(&[share(25, 0)]), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    let first = fleet.on_candidate(&rollout)[0].to_owned();
    let kept = serde_json::to_vec(&rollout).unwrap();
    let mut rollout: Rollout = serde_json::from_slice(&kept).unwrap();
    // No node has connected yet; later all but one have.
    assert_eq!(rollout.observe(&[], at(100)), Change::None);
    fleet.0.retain(|observed| observed.node.id != first);
    assert_eq!(rollout.observe(&fleet.0, at(101)), Change::None);
    assert_eq!(rollout.observe(&fleet.0, at(100) + GRACE_AFTER_RESTART - Duration::from_millis(1)), Change::None);
    assert_eq!(rollout.observe(&fleet.0, at(100) + GRACE_AFTER_RESTART), Change::Ended);
    let expect = State::RolledBack { node: first, reason: "it went away".to_owned() };
    assert_eq!(rollout.state(), &expect);
}

#[test]
fn goes_on_with_a_node_of_the_canary_that_comes_back_late_after_a_restart() {
    let (mut rollout, mut fleet) = (canary(&[share(25, 0)]), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    assert_eq!(rollout.observe(&[], at(100)), Change::None);
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(150)), Change::Spread);
}

fn ids(names: &[&str]) -> std::collections::BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn goes_back_for_no_stranger_in_no_kind_of_rollout() {
    let rollouts = [all_at_once(), canary(&[share(50, 0)]), canary(&[share(25, 0), share(50, 0)])];
    for rollout in rollouts {
        let mut rollout = rollout.witnessed_by(ids(&["a", "b"]));
        let mut fleet = Fleet::of(&["a", "b", "stranger"]);
        for second in 0..20 {
            rollout.observe(&fleet.0, at(second));
            fleet.ack(&rollout);
            fleet.nack("stranger");
            // One that joins in the middle.
            if second == 1 {
                fleet.join(node("late"));
            }
            if second >= 1 {
                fleet.nack("late");
            }
        }
        assert_eq!(rollout.state(), &State::Completed, "{rollout:?}");
    }
}

#[test]
fn waits_for_no_stranger_and_chooses_none() {
    let mut rollout = canary(&[share(50, 0)]).witnessed_by(ids(&["a", "b"]));
    let mut fleet = Fleet::of(&["a", "b"]);
    for stranger in ["0", "1", "2", "3", "4", "5", "6", "7"] {
        fleet.join(node(stranger));
    }
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::Spread);
    let first = fleet.on_candidate(&rollout);
    assert!(first == ["a"] || first == ["b"], "{first:?}");
    for observed in fleet.0.iter_mut().filter(|observed| ["a", "b"].contains(&observed.node.id.as_str())) {
        observed.standing = Standing::Acked;
    }
    assert_eq!(rollout.observe(&fleet.0, at(1)), Change::Spread);
    assert_eq!(rollout.observe(&fleet.0, at(2)), Change::Ended);
    assert_eq!(rollout.state(), &State::Completed);
}

#[test]
fn proves_nothing_by_nodes_that_never_ran_the_last_good_revision() {
    let mut rollout = all_at_once().witnessed_by(ids(&["gone"]));
    let mut fleet = Fleet::of(&["a", "b"]);
    fleet.nack("a");
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::None);
    fleet.get("b").standing = Standing::Acked;
    assert_eq!(rollout.observe(&fleet.0, at(1)), Change::None, "somebody still refuses it");
    assert_eq!(rollout.state(), &State::Progressing);
    fleet.get("a").standing = Standing::Acked;
    assert_eq!(rollout.observe(&fleet.0, at(2)), Change::Ended);
    assert_eq!(rollout.state(), &State::Completed);
}

#[test]
fn tolerates_as_many_refusals_as_it_is_told() {
    let check = |tolerance, refusing: usize, expect: bool| {
        let mut rollout = all_at_once().tolerating(tolerance);
        let mut fleet = Fleet::of(&FOUR);
        fleet.ack(&rollout);
        FOUR.iter().take(refusing).for_each(|name| fleet.nack(name));
        assert_eq!(rollout.observe(&fleet.0, at(0)), Change::Ended);
        assert_eq!(rollout.state() == &State::Completed, expect, "{tolerance:?} {refusing}");
    };
    check(Tolerance::Nodes(0), 1, false);
    check(Tolerance::Nodes(1), 1, true);
    check(Tolerance::Nodes(1), 2, false);
    check(Tolerance::Share(25), 1, true);
    check(Tolerance::Share(25), 2, false);
    check(Tolerance::Share(24), 1, false);
    // At least one node must run it.
    let mut rollout = all_at_once().tolerating(Tolerance::Nodes(4));
    let mut fleet = Fleet::of(&FOUR);
    FOUR.iter().for_each(|name| fleet.nack(name));
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::None);
}

#[test]
fn keeps_its_terms_over_a_restart_and_reads_what_older_versions_wrote() {
    let rollout = all_at_once().tolerating(Tolerance::Share(7)).witnessed_by(ids(&["a"]));
    let text = serde_json::to_string(&rollout).unwrap();
    assert_eq!(serde_json::from_str::<Rollout>(&text).unwrap(), rollout);
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    let fields = older.as_object_mut().unwrap();
    assert!(fields.remove("tolerance").is_some() && fields.remove("witnesses").is_some());
    let (mut rollout, mut fleet) = (serde_json::from_value::<Rollout>(older).unwrap(), Fleet::of(&["b"]));
    fleet.nack("b");
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::Ended, "every node counts");
}

/// A rollout that the nodes `names` took back at second 0, and its fleet.
fn taken_back(rollout: Rollout, names: &[&str]) -> (Rollout, Fleet) {
    let (mut rollout, mut fleet) = (rollout.witnessed_by(ids(&FOUR)), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    names.iter().for_each(|name| fleet.nack(name));
    assert_eq!(rollout.observe(&fleet.0, at(0)), Change::Ended);
    assert!(matches!(rollout.state(), State::RolledBack { .. }));
    (rollout, fleet)
}

#[test]
fn starts_again_when_the_only_node_that_refused_has_left() {
    let (mut rollout, mut fleet) = taken_back(all_at_once(), &["b"]);
    assert_eq!(rollout.observe(&fleet.0, at(1_000)), Change::None, "it is there");
    fleet.leave("b");
    assert_eq!(rollout.observe(&fleet.0, at(1_000)), Change::None, "it may be starting anew");
    assert_eq!(rollout.observe(&fleet.0, at(1_000) + DEPARTED - Duration::from_millis(1)), Change::None);
    assert_eq!(rollout.observe(&fleet.0, at(1_000) + DEPARTED), Change::Spread);
    assert_eq!((rollout.state(), rollout.last_good()), (&State::Progressing, Some(1)));
    assert_eq!(rollout.without().iter().collect::<Vec<_>>(), ["b"]);
    fleet.ack(&rollout);
    assert_eq!(rollout.observe(&fleet.0, at(2_000)), Change::Ended);
    assert_eq!((rollout.state(), rollout.last_good()), (&State::Completed, Some(2)));
}

#[test]
fn starts_again_with_the_first_step_of_a_canary() {
    let (mut rollout, mut fleet) = (canary(&[share(50, 60)]).witnessed_by(ids(&FOUR)), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    let first: Vec<_> = fleet.on_candidate(&rollout).into_iter().map(str::to_owned).collect();
    fleet.nack(&first[0]);
    rollout.observe(&fleet.0, at(1));
    fleet.leave(&first[0]);
    rollout.observe(&fleet.0, at(2));
    assert_eq!(rollout.observe(&fleet.0, at(2) + DEPARTED), Change::Spread);
    assert_eq!(fleet.on_candidate(&rollout), [""; 0]);
    assert_eq!(rollout.observe(&fleet.0, at(100)), Change::Spread, "it chooses");
    let second = fleet.on_candidate(&rollout);
    assert_eq!((second.len(), rollout.progress()), (2, (1, 2)), "half of the three that are left, rounded up");
    assert!(!second.contains(&first[0].as_str()), "{second:?}");
}

#[test]
fn no_node_that_refuses_leaves_and_comes_back_makes_the_fleet_oscillate() {
    let (mut rollout, mut fleet) = taken_back(all_at_once(), &["b"]);
    let (mut starts, mut backs) = (0, 1);
    // It is away for long, comes back and refuses, again and again; the others never answer, so that the rollout stays
    // open to it as long as possible.
    for second in 1..10_000 {
        match second % 200 {
            10 => fleet.leave("b"),
            150 => {
                fleet.come_back("b");
                fleet.nack("b");
            }
            _ => {}
        }
        match rollout.observe(&fleet.0, at(second)) {
            Change::Spread => starts += 1,
            Change::Ended => backs += 1,
            Change::None => {}
        }
    }
    assert_eq!((starts, backs), (1, 1), "it goes back once, forward once, and stays");
    assert_eq!(rollout.state(), &State::Progressing);
    fleet.ack(&rollout);
    fleet.nack("b");
    assert_eq!(rollout.observe(&fleet.0, at(10_000)), Change::Ended);
    assert_eq!(rollout.state(), &State::Completed, "and it holds up nobody");
}

#[test]
fn a_node_that_leaves_for_a_short_time_changes_nothing() {
    let (mut rollout, mut fleet) = taken_back(all_at_once(), &["b"]);
    for second in 1..3_000 {
        if second % 100 < 50 {
            fleet.leave("b")
        } else {
            fleet.come_back("b")
        }
        assert_eq!(rollout.observe(&fleet.0, at(second)), Change::None, "second {second}");
    }
}

#[test]
fn many_nodes_that_refuse_and_leave_one_after_the_other_are_bounded() {
    let names: Vec<_> = (0..20).map(|number| format!("node-{number:02}")).collect();
    let mut rollout = all_at_once().witnessed_by(names.iter().cloned().collect());
    let mut fleet = Fleet::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let (mut starts, mut second) = (0, 0);
    for name in &names {
        fleet.nack(name);
        rollout.observe(&fleet.0, at(second));
        fleet.leave(name);
        rollout.observe(&fleet.0, at(second));
        second += DEPARTED.as_secs();
        starts += u32::from(rollout.observe(&fleet.0, at(second)) == Change::Spread);
    }
    assert_eq!(starts, ATTEMPTS);
    assert!(matches!(rollout.state(), State::RolledBack { .. }), "and then it stays back");
    assert!(!rollout.may_start_again(at(second)));
}

#[test]
fn starts_again_only_within_a_time_and_never_after_an_abort_or_a_node_that_vanished() {
    let late = LONGEST_SETBACK.as_secs() + 1;
    let (mut rollout, mut fleet) = taken_back(all_at_once(), &["b"]);
    fleet.leave("b");
    assert!(rollout.may_start_again(at(late - 1)) && !rollout.may_start_again(at(late)));
    assert_eq!(rollout.observe(&fleet.0, at(late)), Change::None);
    assert_eq!(rollout.observe(&fleet.0, at(late) + DEPARTED), Change::None);

    let mut rollout = all_at_once();
    rollout.abort().unwrap();
    assert!(!rollout.may_start_again(at(0)));

    // A node that took the candidate and vanished speaks against it.
    let (mut rollout, mut fleet) = (canary(&[share(25, 600)]), Fleet::of(&FOUR));
    rollout.observe(&fleet.0, at(0));
    let first = fleet.on_candidate(&rollout)[0].to_owned();
    fleet.ack(&rollout);
    fleet.leave(&first);
    rollout.observe(&fleet.0, at(1));
    assert_eq!(rollout.observe(&fleet.0, at(1) + GRACE), Change::Ended);
    assert_eq!(rollout.observe(&fleet.0, at(1_000)), Change::None);
    assert!(!rollout.may_start_again(at(1_000)));
}

#[test]
fn starts_again_only_when_all_that_refused_have_left_or_are_tolerated() {
    let (mut rollout, mut fleet) = taken_back(all_at_once(), &["b"]);
    // One more answers after the rollback.
    fleet.nack("c");
    fleet.leave("b");
    rollout.observe(&fleet.0, at(1));
    assert_eq!(rollout.observe(&fleet.0, at(1) + DEPARTED), Change::None, "c refuses it still");
    fleet.leave("c");
    rollout.observe(&fleet.0, at(100));
    assert_eq!(rollout.observe(&fleet.0, at(100) + DEPARTED), Change::Spread);

    let (mut rollout, mut fleet) = taken_back(all_at_once().tolerating(Tolerance::Nodes(1)), &["b", "c"]);
    fleet.leave("b");
    rollout.observe(&fleet.0, at(1));
    assert_eq!(rollout.observe(&fleet.0, at(1) + DEPARTED), Change::Spread, "one may refuse");

    let (mut rollout, mut fleet) = taken_back(all_at_once(), &["b"]);
    FOUR.iter().for_each(|name| fleet.leave(name));
    rollout.observe(&fleet.0, at(1));
    assert_eq!(rollout.observe(&fleet.0, at(1) + DEPARTED), Change::None, "nobody is left that could run it");
}

#[test]
fn counts_absences_anew_after_a_restart() {
    let (mut rollout, mut fleet) = taken_back(all_at_once().departed_after(Duration::from_secs(1)), &["b"]);
    fleet.leave("b");
    rollout.observe(&fleet.0, at(1));
    let kept = serde_json::to_vec(&rollout).unwrap();
    let mut rollout: Rollout = serde_json::from_slice(&kept).unwrap();
    rollout.restarted();
    // Nobody has come back yet, and later all but one have.
    assert_eq!(rollout.observe(&[], at(100)), Change::None);
    fleet.0.retain(|observed| observed.node.id != "b");
    assert_eq!(rollout.observe(&fleet.0, at(101)), Change::None);
    assert_eq!(rollout.observe(&fleet.0, at(100) + GRACE_AFTER_RESTART), Change::Spread);
}
