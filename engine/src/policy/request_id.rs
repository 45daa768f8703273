//! `requestId`: an id for every request, for the upstream, the caller and their logs.

use std::{fmt::Write, sync::Arc};

use postern_proto::plan::v1 as wire;

use super::{BuiltIn, Context, Flow, Known};
use crate::{
    edited::HeaderEdits,
    edits::Values,
    event::{Needs, Phase},
    header::{HeaderUse, Name, Value},
    load_error::LoadError,
    schema::{Field, Kind, Object, PolicySchema},
};

/// The longest id that is taken from a caller.
const LONGEST: usize = 128;

/// What a user may write.
pub(super) const SCHEMA: PolicySchema = PolicySchema {
    name: "requestId",
    about: "Gives every request an id, in a header to the upstream and on the answer. Envoy has put an id of its own \
            into `x-request-id` before, in place of a caller's at an edge (`preserve_external_request_id` keeps it; \
            Postern's listeners have it set where a route trusts that header).",
    phases: &[Phase::Request],
    params: Object {
        fields: &[
            Field::optional("header", Kind::EditedHeader(HeaderUse::Set), "The header that carries the id.")
                .or("x-request-id"),
            Field::optional(
                "trustIncoming",
                Kind::Boolean,
                "Whether an id that comes with the request stays, if it is 1 to 128 of `A-Z a-z 0-9 . _ - : / + =`.",
            )
            .or("false"),
            Field::optional(
                "format",
                Kind::Choice(&["uuidv4", "uuidv7"]),
                "What a new id is like: random, or sortable by time.",
            )
            .or("uuidv4"),
            Field::optional("echo", Kind::Boolean, "Whether the answer carries it too.").or("true"),
        ],
        exactly_one_of: &[],
    },
    endings: &[],
    example: "\
- policy: requestId
  params: { header: x-correlation-id, trustIncoming: true, format: uuidv7 }
",
};

/// The loaded step.
#[derive(Debug)]
pub(crate) struct RequestId {
    header: Name,
    trust_incoming: bool,
    sortable: bool,
    echo: bool,
}

impl BuiltIn for RequestId {
    type Wire = wire::RequestId;
    type State = ();

    fn load(wire: &wire::RequestId, Known { strings, .. }: Known<'_>) -> Result<Self, LoadError> {
        let wire::RequestId { header, trust_incoming, sortable, echo } = *wire;
        Ok(Self { header: strings.set_header(header)?, trust_incoming, sortable, echo })
    }

    fn needs(&self, _: Phase) -> Needs {
        Needs::RANDOM.union(Needs::REQUEST_HEADERS.when(self.trust_incoming)).union(Needs::NOW.when(self.sortable))
    }

    /// The header is promised, unless the id of the caller is trusted.
    fn edits(&self) -> HeaderEdits {
        let edits = HeaderEdits::none();
        if self.trust_incoming { edits.editing([self.header.get()]) } else { edits.promising([&self.header]) }
    }

    #[inline(never)]
    fn run(&self, context: &mut Context<'_>, (): &mut ()) -> Flow {
        let incoming = self.incoming(context);
        let is_new = incoming.is_none();
        let time = self.sortable.then_some(context.inputs.now);
        let id = incoming.unwrap_or_else(|| Value::lossy(uuid(context.random(), time)));
        if is_new {
            context.edits.set(context.step, &self.header, &id);
        }
        if self.echo {
            context.facts.rare().response.set(context.step, &self.header, &id);
            context.facts.rare().answers.push((Arc::clone(self.header.get()), Arc::clone(id.get())));
        }
        Flow::Continue
    }
}

impl RequestId {
    /// The id that the request came with, if it is trusted and may stand in headers and logs.
    fn incoming(&self, context: &Context<'_>) -> Option<Value> {
        let values = if self.trust_incoming { context.forwarded_header(self.header.get()) } else { Values::new() };
        let [id] = values.as_slice() else { return None };
        let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-:/+=".contains(byte);
        let fits = (1..=LONGEST).contains(&id.len()) && id.iter().all(plain);
        str::from_utf8(id).ok().filter(|_| fits).and_then(Value::new)
    }
}

/// A UUID (RFC 9562): of version 7 if there is a time, which is in nanoseconds, else of version 4.
fn uuid(random: [u8; 16], nanoseconds: Option<u64>) -> String {
    let mut bits = u128::from_be_bytes(random);
    let version: u128 = match nanoseconds {
        None => 4,
        Some(time) => {
            let milliseconds = u128::from(time / 1_000_000) & 0xffff_ffff_ffff;
            bits = (bits & (u128::MAX >> 48)) | (milliseconds << 80);
            7
        }
    };
    bits = (bits & !(0xf << 76)) | (version << 76);
    bits = (bits & !(0b11 << 62)) | (0b10 << 62);
    let mut text = String::with_capacity(36);
    for (index, byte) in bits.to_be_bytes().into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_uuids() {
        assert_eq!(uuid([0; 16], None), "00000000-0000-4000-8000-000000000000");
        assert_eq!(uuid([0xff; 16], None), "ffffffff-ffff-4fff-bfff-ffffffffffff");
        // RFC 9562, appendix A.6: 2022-02-22 19:22:22 UTC.
        let random = [0, 0, 0, 0, 0, 0, 0x0c, 0xc3, 0x18, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f];
        let time = 1_645_557_742_000 * 1_000_000;
        assert_eq!(uuid(random, Some(time)), "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
        assert_eq!(uuid([0; 16], Some(u64::MAX)).len(), 36);
    }
}
