//! What must hold of every decision, whatever the plan and the message.

use postern_engine::{
    Decision, Plan, Response, Verdict,
    header::{HeaderUse, refusal},
};

const REVISION: &str = "r1";
const ROUTE: &str = "a-route";

/// The keys that an account may have between the verdict and the route.
const KEYS: [&str; 7] = ["step", "reason", "consumer", "failed", "skipped", "shadow", "conflicts"];

/// Checks a decision: its account cannot be forged, and nothing in it would break a header.
///
/// # Panics
/// If something does not hold.
pub fn check(decision: &Decision) {
    check_account(&decision.account(REVISION, ROUTE));
    match &decision.verdict {
        Verdict::Continue(edits) => {
            for edit in edits.headers() {
                check_header(&edit.name, edit.values.iter().map(|value| &**value));
                let how = if edit.values.is_empty() { HeaderUse::Remove } else { HeaderUse::Set };
                assert_eq!(refusal(&edit.name, how), None, "an edit of `{}`", edit.name);
            }
        }
        Verdict::Deny(response) | Verdict::Respond(response) => check_response(response),
    }
    for record in &decision.records {
        assert!(record.grpc.as_ref().is_none_or(|call| call.message.len() <= 8 << 10), "a record too long: {record:?}");
        if record.line.is_empty() {
            continue;
        }
        let fits = record.line.len() <= 8 << 10 && !record.line.chars().any(char::is_control);
        assert!(fits && record.line.starts_with(r#"{"audit":"#), "a record that breaks: {record:?}");
    }
    assert_eq!(decision.step.is_some(), decision.reason.is_some(), "a step has a reason: {decision:?}");
    let passes = matches!(decision.verdict, Verdict::Continue(_));
    assert_ne!(passes, decision.step.is_some(), "who ends a message is named, and nobody else: {decision:?}");
}

/// Checks that a request's edits are among those that its chain says it may make.
///
/// # Panics
/// If one is not.
pub fn check_edits(plan: &Plan, route: &str, request: &Decision) {
    let Some(chain) = plan.chain_of(route) else { return };
    let said = plan.edited_request_headers(chain);
    if let Verdict::Continue(edits) = &request.verdict {
        let unsaid = edits.headers().find(|edit| !said.may_edit(&edit.name));
        assert!(unsaid.is_none(), "an edit that no policy describes: {unsaid:?}, only {said:?}");
    }
}

/// The keys of an account, in order.
///
/// # Panics
/// If it is not what [`Decision::account`] promises.
pub fn check_account(account: &str) -> Vec<&str> {
    assert!(account.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()), "a forged account: {account:?}");
    let pair = |text| str::split_once(text, '=').unwrap_or((text, ""));
    let pairs: Vec<_> = account.split(' ').map(pair).collect();
    assert!(
        pairs.iter().all(|(_, value)| !value.is_empty() && !value.contains('=')),
        "not all pairs of a key and a value: {account:?}"
    );
    let keys: Vec<_> = pairs.into_iter().map(|(key, _)| key).collect();
    let framed = keys.first() == Some(&"verdict") && keys.ends_with(&["route", "plan"]) && keys.len() >= 3;
    assert!(framed, "an account without its frame: {account:?}");
    let middle: Vec<_> = keys.iter().skip(1).take(keys.len() - 3).collect();
    assert!(middle.iter().all(|key| KEYS.contains(*key)), "an unknown key: {account:?}");
    for key in ["step", "reason", "consumer", "conflicts"] {
        assert!(middle.iter().filter(|found| ***found == key).count() <= 1, "`{key}` is there twice: {account:?}");
    }
    keys
}

fn check_response(response: &Response) {
    assert!((200..=599).contains(&response.status), "status {}", response.status);
    for (name, value) in &response.headers {
        check_header(name, [&**value]);
        assert_eq!(refusal(name, HeaderUse::Set), None, "an answer with `{name}`");
    }
}

fn check_header<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) {
    let token = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && byte != b':';
    assert!(!name.is_empty() && name.bytes().all(token), "a header named {name:?}");
    for value in values {
        let fits = |byte: u8| byte == b'\t' || !byte.is_ascii_control();
        assert!(value.bytes().all(fits), "header `{name}` is {value:?}");
    }
}
