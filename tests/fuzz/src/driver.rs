//! Drives runs and answers all that they ask for from a script.

use std::sync::Arc;

use postern_engine::{
    Answer, Ask, Decision, Headers, Host, Inputs, Needs, Plan, Response, Run, Turn, Verdict,
    agent::{CallError, Health, Instruction, Outcome, Reply},
    host::{SharedValue, Unavailable},
    jwt::{Entry, SignatureCheck, TokenKey, Verified},
};

use crate::{Script, cost, decision};

/// More turns than the longest chain of an input can take.
const MOST_TURNS: usize = 1 << 16;
/// One for request and response; for each of them one of steps in shadow mode, and one of records.
const BUDGETS: u64 = 5;
/// More steps than a plan of a script has, each of which may read the body.
const MOST_READERS: usize = 64;

const NAMES: [&str; 19] = [
    ":path",
    ":method",
    ":authority",
    "x-api-key",
    "cookie",
    "x-user",
    "x-kind",
    "x-request-id",
    ":status",
    "x-a",
    ":scheme",
    "content-type",
    "authorization",
    "signature",
    "signature-input",
    "content-digest",
    "origin",
    "x-forwarded-for",
    "content-length",
];

/// Sends one request through a route, and a response if the request passes; checks both decisions.
pub fn exchange(plan: &Arc<Plan>, route: &str, script: &mut Script<'_>) {
    let health = Health::new((0..script.below(4)).map(|_| script.below(4) != 0).collect());
    // The same whenever it is asked for, as a host's is.
    let body = script.chunk();
    let Some(mut run) = Run::request(plan, route, &health) else { return };
    cost::start();
    let request = drive(&mut run, body, script);
    decision::check(&request);
    decision::check_edits(plan, route, &request);
    if matches!(request.verdict, Verdict::Continue(_))
        && let Some(mut run) = Run::response(plan, route, &health, run.take_outlook())
    {
        decision::check(&drive(&mut run, body, script));
    }
    cost::check(BUDGETS, plan.steps(), body.len().saturating_mul(MOST_READERS));
}

fn drive(run: &mut Run, body: &[u8], script: &mut Script<'_>) -> Decision {
    let mut turns = 0;
    loop {
        turns += 1;
        assert!(turns < MOST_TURNS, "the run does not end");
        match run.advance(&mut Worker(script)) {
            Turn::Done => return run.take_decision(),
            Turn::Ask(Ask::Inputs(needs)) if needs.has(Needs::BODY) && body.len() > run.body_limit() => {
                run.answer(Answer::BodyTooLarge)
            }
            Turn::Ask(Ask::Inputs(needs)) => run.give(inputs(needs, body, script)),
            Turn::Ask(Ask::Wait { .. }) => run.answer(Answer::Waited),
            Turn::Ask(Ask::Call(_)) => run.answer(Answer::Called(reply(script))),
        }
    }
}

/// A worker whose shared values, and whose words on signatures, are anything.
#[derive(Debug)]
struct Worker<'a, 'script>(&'a mut Script<'script>);

impl Host for Worker<'_, '_> {
    fn load(&mut self, _key: &Arc<str>) -> Result<(SharedValue, u32), Unavailable> {
        let Self(script) = self;
        let size = script.below(200);
        let value = script.bytes(size).into();
        if script.byte() == 1 { Err(Unavailable) } else { Ok((value, script.byte().into())) }
    }

    fn store(&mut self, _key: &Arc<str>, _value: SharedValue, _version: u32) -> Result<bool, Unavailable> {
        match self.0.byte() % 8 {
            1 | 2 => Ok(false),
            3 => Err(Unavailable),
            _ => Ok(true),
        }
    }

    fn recall(&mut self, _key: &TokenKey) -> Option<Arc<Verified>> {
        None
    }

    fn remember(&mut self, _entry: Entry) {}

    fn verify(&mut self, _check: &SignatureCheck) -> Option<bool> {
        [None, Some(false), Some(true)].get(self.0.below(3)).copied().flatten()
    }
}

fn inputs(needs: Needs, body: &[u8], script: &mut Script<'_>) -> Inputs {
    let mut inputs = Inputs::default();
    if needs.has(Needs::REQUEST_HEADERS) {
        inputs.request_headers = headers(script);
    }
    if needs.has(Needs::RESPONSE_HEADERS) {
        inputs.response_headers = headers(script);
    }
    if needs.has(Needs::NOW) {
        inputs.now = script.number();
    }
    inputs.has_body = !body.is_empty();
    if needs.has(Needs::RANDOM) {
        let bytes = script.bytes(16);
        inputs.random.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
    }
    if needs.has(Needs::BODY) {
        inputs.body = body.to_vec();
    }
    for property in needs.properties() {
        if script.flag() {
            inputs.set(property, script.chunk().to_vec());
        }
    }
    inputs
}

/// Headers with likely names, repeated ones among them, and any values.
fn headers(script: &mut Script<'_>) -> Headers {
    let header = |script: &mut Script<'_>| {
        let name = match script.byte() {
            0 => script.chunk().to_vec(),
            choice => script_name(choice).as_bytes().to_vec(),
        };
        (name, script.chunk().to_vec())
    };
    (0..script.below(8)).map(|_| header(script)).collect()
}

fn script_name(choice: u8) -> &'static str {
    NAMES.get(usize::from(choice) % NAMES.len()).copied().unwrap_or("x-a")
}

/// What an agent says: anything.
fn reply(script: &mut Script<'_>) -> Result<Reply, CallError> {
    let name = |script: &mut Script<'_>| match script.below(8) {
        0 => "content-length".to_owned(),
        1 => "Transfer-Encoding".to_owned(),
        2 => script.text(),
        _ => "x-a".to_owned(),
    };
    let instruction = |script: &mut Script<'_>| match script.below(4) {
        0 => Instruction::SetHeader(name(script).into(), script.text().into()),
        1 => Instruction::RemoveHeader(name(script).into()),
        2 => Instruction::SetBody(script.chunk().to_vec()),
        _ => Instruction::Respond(Response::problem(403, &script.text()).with_header(&name(script), &script.text())),
    };
    match script.below(8) {
        0 => Err(CallError::Timeout),
        1 => Err(CallError::Unreachable),
        2 => Err(CallError::Invalid),
        other => Ok(Reply {
            outcome: [Outcome::Failed, Outcome::Denied].get(other - 3).copied().unwrap_or(Outcome::Allowed),
            instructions: (0..script.below(4)).map(|_| instruction(script)).collect(),
            metadata: (0..script.below(3)).map(|_| (script.text(), script.text())).collect(),
        }),
    }
}
