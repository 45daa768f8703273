//! What a loaded plan reports of the request headers that its chains edit.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use common::Writer;
use postern_proto::plan::v1::{self as wire, step::Policy};

fn check(write: impl FnOnce(&mut Writer) -> Vec<wire::Step>, names: &[&str], any: bool, steps: &[&str]) {
    let mut writer = Writer::new();
    let request = write(&mut writer);
    writer.route("a", request, vec![]);
    let plan = writer.load();
    let chain = plan.chain_of("a").unwrap();
    let edited = plan.edited_request_headers(chain);
    assert_eq!((edited.names().collect::<Vec<_>>(), edited.is_any()), (names.to_vec(), any));
    assert_eq!(plan.editing_steps(chain).map(|(step, _)| step).collect::<Vec<_>>(), steps);
    assert_eq!(plan.chains(), 1);
}

#[test]
fn says_what_headers_sets_adds_and_removes_in_shadow_mode_too() {
    check(
        |writer| {
            let header = |writer: &mut Writer, name| wire::HeaderValue { name: writer.string(name), value: 0 };
            let (set, add) = (vec![header(writer, "x-set")], vec![header(writer, "x-add")]);
            let remove = vec![writer.string("x-remove")];
            let step = writer.step("edit", Policy::Headers(wire::Headers { remove, set, add, ..Default::default() }));
            vec![wire::Step { shadow: true, ..step }, writer.key_step()]
        },
        &["x-add", "x-remove", "x-set"],
        false,
        &["edit"],
    );
}

#[test]
fn says_what_credentials_and_ids_edit() {
    check(
        |writer| {
            let basic = wire::BasicAuth { realm: writer.string("r"), remove: true };
            let id = wire::RequestId { header: writer.string("x-id"), trust_incoming: true, ..Default::default() };
            vec![writer.step("password", Policy::BasicAuth(basic)), writer.step("id", Policy::RequestId(id))]
        },
        &["authorization", "x-id"],
        false,
        &["password", "id"],
    );
}

#[test]
fn says_that_an_agent_may_edit_any_header() {
    check(
        |writer| {
            let agent = writer.agent("waf", false);
            vec![writer.agent_step("scan", &[agent])]
        },
        &[],
        true,
        &["scan"],
    );
}

#[test]
fn says_nothing_of_a_chain_that_edits_nothing_or_does_not_exist() {
    check(|writer| vec![writer.key_step()], &[], false, &[]);
    let plan = Writer::new().load();
    assert!(plan.edited_request_headers(7).is_empty() && plan.chain_of("a").is_none());
}
