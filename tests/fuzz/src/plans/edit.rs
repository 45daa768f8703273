//! Changes to a plan, as a script says.

use postern_proto::plan::v1 as wire;
use sha2::{Digest as _, Sha256};

use super::policies::{self, Scope};
use crate::{Script, expressions};

/// Changes one thing about a plan, as a script says. The result may or may not load.
pub fn edit(plan: &mut wire::Plan, script: &mut Script<'_>) {
    let scope = Scope { strings: plan.strings.len(), expressions: plan.expressions.len() };
    let strings = scope.strings;
    match script.below(12) {
        0 => put(&mut plan.strings, script, |script| script.text()),
        1 => put(&mut plan.expressions, script, expressions::scripted),
        2 => {
            put(&mut plan.routes, script, |script| wire::Route { name: script.index(strings), chain: script.index(5) })
        }
        3 => put(&mut plan.agents, script, |script| wire::Agent {
            name: script.index(strings),
            fail_open: script.flag(),
            timeout_ms: script.byte().into(),
        }),
        4 => put(&mut plan.consumers, script, |script| consumer(script, scope)),
        5 => plan.policy_not_supported = Some(scope.answer(script)),
        6 => plan.agent_unavailable = Some(scope.answer(script)),
        7 => {
            let place = script.below(plan.chains.len());
            if let Some(chain) = plan.chains.get_mut(place) {
                (chain.shadow, chain.body_limit) = (script.flag(), script.byte().into());
            }
        }
        _ => edit_steps(plan, script, scope),
    }
}

fn edit_steps(plan: &mut wire::Plan, script: &mut Script<'_>, scope: Scope) {
    let place = script.below(plan.chains.len());
    let Some(chain) = plan.chains.get_mut(place) else { return };
    let steps = if script.byte() % 4 == 3 { &mut chain.response } else { &mut chain.request };
    let steps = steps.get_or_insert_default();
    match script.below(8) {
        0 => steps.unsupported.push(scope.string(script)),
        1 => steps.unsupported.clear(),
        2 => drop(steps.steps.pop()),
        3 => {
            let (from, to) = (script.below(steps.steps.len()), script.below(steps.steps.len()));
            if !steps.steps.is_empty() {
                steps.steps.swap(from, to);
            }
        }
        _ => put(&mut steps.steps, script, |script| wire::Step {
            name: scope.string(script),
            when: scope.expression(script),
            on_failure: i32::from(script.byte() % 5),
            shadow: script.byte() % 4 == 3,
            deny_with: (script.byte() % 4 == 3).then(|| wire::DenyWith {
                status: (script.byte() % 2 == 1).then(|| u32::from(script.byte()) * 3),
                headers: scope.pairs(script),
                body: (script.byte() % 2 == 1).then(|| scope.string(script)),
            }),
            source: (script.byte() % 4 == 3).then(|| scope.source(script)),
            alternative: script.byte() % 4 == 3,
            policy: Some(policies::scripted(script, scope)),
        }),
    }
}

/// Replaces an entry, or adds one at the end.
fn put<T>(list: &mut Vec<T>, script: &mut Script<'_>, make: impl FnOnce(&mut Script<'_>) -> T) {
    let place = script.below(list.len() + 1);
    let entry = make(script);
    match list.get_mut(place) {
        Some(known) => *known = entry,
        None => list.push(entry),
    }
}

fn consumer(script: &mut Script<'_>, scope: Scope) -> wire::Consumer {
    let digest = |script: &mut Script<'_>| Sha256::digest(script.chunk()).to_vec();
    wire::Consumer {
        name: scope.string(script),
        api_key_sha256: (0..script.below(3)).map(|_| digest(script)).collect(),
        groups: scope.strings(script),
        basic_auth: script.flag().then(|| wire::PasswordCredential {
            username: scope.string(script),
            salt: script.chunk().to_vec(),
            iterations: u32::from(script.byte() % 4),
            hash: digest(script),
        }),
        hmac: (0..script.below(3))
            .map(|_| wire::HmacKey { id: scope.string(script), secret: script.chunk().to_vec() })
            .collect(),
    }
}
