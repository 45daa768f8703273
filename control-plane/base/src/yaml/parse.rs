//! Reads bytes into trees: handles the events of the YAML parser and limits the size of a file. The limits of a tree
//! are in `build`.

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::{
    build::Builder,
    document::{Fault, Parsed},
    tree::{Node, Position, Value},
};

/// The largest accepted file, in bytes.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// Reads all documents of a file. Never panics. Time and memory are bounded; a file that exceeds a limit is reported in
/// [`Parsed::broken`].
pub fn parse(bytes: &[u8]) -> Parsed {
    let mut builder = Builder::default();
    let outcome = decode(bytes).and_then(|text| feed(&mut builder, text));
    builder.finish(outcome.err())
}

fn decode(bytes: &[u8]) -> Result<&str, Fault> {
    if bytes.len() > MAX_BYTES {
        let message = format!("file is too large: {} bytes, at most {MAX_BYTES} are read", bytes.len());
        return Err(Fault { at: Position::START, field: None, message });
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|error| Fault::at_byte(bytes, error.valid_up_to(), "file is not valid UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}

fn feed(builder: &mut Builder, text: &str) -> Result<(), Fault> {
    let mut parser = Parser::new_from_str(text);
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| syntax(&error))?;
        take(builder, event, position(span.start))?;
    }
    Ok(())
}

fn take(builder: &mut Builder, event: Event<'_>, at: Position) -> Result<(), Fault> {
    match event {
        Event::Scalar(text, style, anchor, tag) => {
            let tag = tag.as_deref();
            refuse_tag(builder, tag.filter(|tag| !is_string(tag)), at);
            let plain = style == ScalarStyle::Plain && !tag.is_some_and(is_string);
            if plain && text == "<<" && builder.expects_key() {
                builder.refuse_key(at, "merge keys (`<<`) are not supported");
                return Ok(());
            }
            let value = if plain { Value::plain(&text) } else { Value::Text(text.into_owned()) };
            builder.scalar(Node { at, value }, anchor)
        }
        Event::SequenceStart(anchor, tag) => {
            refuse_tag(builder, tag.as_deref(), at);
            builder.open_list(at, anchor)
        }
        Event::MappingStart(anchor, tag) => {
            refuse_tag(builder, tag.as_deref(), at);
            builder.open_map(at, anchor)
        }
        Event::SequenceEnd | Event::MappingEnd => builder.close(),
        Event::Alias(anchor) => builder.alias(at, anchor),
        Event::DocumentEnd => {
            builder.end_document();
            Ok(())
        }
        Event::DocumentStart(_) | Event::StreamStart | Event::StreamEnd | Event::Nothing => Ok(()),
    }
}

/// Refuses a tag: it could change the meaning of a value, and would have to be ignored.
fn refuse_tag(builder: &mut Builder, tag: Option<&Tag>, at: Position) {
    if tag.is_some() {
        builder.refuse(at, "tags other than `!!str` are not supported");
    }
}

fn is_string(tag: &Tag) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == "str"
}

fn syntax(error: &ScanError) -> Fault {
    Fault { at: position(*error.marker()), field: None, message: format!("not valid YAML: {}", error.info()) }
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line(), column: marker.col() + 1 }
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    /// Compares the documents as JSON, followed by the faults.
    fn check(input: impl AsRef<[u8]>, expect: &[&str]) {
        let mut lines = Vec::new();
        let show = |fault: Fault| {
            let field = fault.field.map(|field| format!("{field}: ")).unwrap_or_default();
            format!("{}:{}: {field}{}", fault.at.line, fault.at.column, fault.message)
        };
        let parsed = parse(input.as_ref());
        for document in parsed.documents {
            lines.push(document.root.to_json().to_string());
            lines.extend(document.faults.into_iter().map(show));
        }
        lines.extend(parsed.broken.into_iter().map(show));
        assert_eq!(lines, expect);
    }

    #[test]
    fn reads_documents_and_skips_empty_ones() {
        check(
            "a: 1\n---\n---\n# nothing\n---\nb: [x, '2', \"3\", !!str 4]\n",
            &[r#"{"a":1}"#, r#"{"b":["x","2","3","4"]}"#],
        );
        check("", &[]);
        check("# only a comment\n", &[]);
        check("\u{feff}a: 1", &[r#"{"a":1}"#]);
    }

    #[test]
    fn knows_where_values_and_keys_start() {
        let parsed = parse(b"# first\na:\n  - b: x\n    c: {d: [1, 2]}\n");
        let root = &parsed.documents[0].root;
        let place = |node: &Node| (node.at.line, node.at.column);
        assert_eq!(place(root), (2, 1));
        let item = &root.get("a").unwrap().items()[0];
        assert_eq!(place(item), (3, 5));
        assert_eq!(place(item.get("b").unwrap()), (3, 8));
        let c = item.get("c").unwrap();
        assert_eq!(place(c), (4, 8));
        assert_eq!(place(&c.get("d").unwrap().items()[1]), (4, 16));
        let Value::Map(entries) = &c.value else { panic!("no mapping") };
        assert_eq!((entries[0].0.at.line, entries[0].0.at.column), (4, 9));
    }

    #[test]
    fn places_a_syntax_error_and_keeps_the_documents_before_it() {
        check(
            "a: 1\n---\nb: {c: 2\n",
            &[r#"{"a":1}"#, "4:1: not valid YAML: while parsing a flow mapping, did not find expected ',' or '}'"],
        );
        check("a: *nowhere\n", &["1:4: not valid YAML: while parsing node, found unknown anchor"]);
    }

    #[test]
    fn refuses_duplicate_keys_with_both_lines() {
        check(
            "spec:\n  - a: 1\n    b: 2\n    a: 3\n  - a: 4\n",
            &[r#"{"spec":[{"a":1,"b":2},{"a":4}]}"#, "4:5: spec[0]: duplicate key `a`: first on line 2"],
        );
    }

    #[test]
    fn refuses_keys_that_are_no_strings_and_goes_on() {
        check(
            "1: a\ntrue: b\n? [x]\n: c\n? {y: z}\n: {d: e}\n'2': f\n",
            &[
                r#"{"2":"f"}"#,
                "1:1: expected a string as key, found a number: put it in quotes",
                "2:1: expected a string as key, found a boolean: put it in quotes",
                "3:3: expected a string as key, found a list",
                "5:3: expected a string as key, found a mapping",
            ],
        );
    }

    #[test]
    fn refuses_merge_keys() {
        check(
            "a: &a {x: 1}\nb:\n  <<: *a\n  '<<': text\n  c: <<\n",
            &[r#"{"a":{"x":1},"b":{"<<":"text","c":"<<"}}"#, "3:3: b: merge keys (`<<`) are not supported"],
        );
    }

    #[test]
    fn refuses_tags() {
        let parsed = parse(b"a: !!int 1\nb: !mine [x]\n");
        let faults: Vec<_> = parsed.documents[0].faults.iter().map(|fault| fault.message.as_str()).collect();
        assert_eq!(faults, ["tags other than `!!str` are not supported"; 2]);
    }

    #[test]
    fn expands_aliases() {
        check("a: &x {b: &y 1}\nc: *x\nd: [*y, *x]\n", &[r#"{"a":{"b":1},"c":{"b":1},"d":[1,{"b":1}]}"#]);
        check("&k key: 1\nb: {*k : 2}\n", &[r#"{"b":{"key":2},"key":1}"#]);
        check("a: &x 1\n---\nb: *x\n", &[r#"{"a":1}"#, "3:4: b: alias names nothing in this document"]);
    }

    #[test]
    fn places_an_alias_where_it_stands_and_its_parts_where_they_were_written() {
        let parsed = parse(b"a: &x {b: 1}\nc: *x\n");
        let alias = parsed.documents[0].root.get("c").unwrap();
        assert_eq!((alias.at.line, alias.at.column), (2, 4));
        assert_eq!(alias.get("b").unwrap().at.line, 1);
    }

    #[test]
    fn refuses_an_alias_of_itself() {
        check("a: &x [1, *x]\n", &["1:11: a[1]: alias stands inside the value that it names"]);
    }

    #[test]
    fn bounds_the_nodes_of_expanded_aliases() {
        let mut laughs = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let alias = format!("*a{}, ", level - 1).repeat(10);
            writeln!(laughs, "a{level}: &a{level} [{alias}]").unwrap();
        }
        check(laughs, &["6:40: a5[6]: more than 1000000 values, with aliases expanded"]);
    }

    #[test]
    fn bounds_the_text_of_expanded_aliases() {
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1024 * 1024), "*a, ".repeat(100));
        check(text, &["2:249: b[61]: more than 67108864 bytes of text, with aliases expanded"]);
    }

    #[test]
    fn bounds_the_depth() {
        check(format!("{}1{}", "[".repeat(64), "]".repeat(64)), &[&format!("{}1{}", "[".repeat(64), "]".repeat(64))]);
        let field = "[0]".repeat(64);
        check("[".repeat(100), &[&format!("1:65: {field}: nested more than 64 deep")]);
        check("- ".repeat(100_000), &[&format!("1:129: {field}: nested more than 64 deep")]);
        let half = format!("{}1{}", "[".repeat(40), "]".repeat(40));
        let aliased = format!("- &a {half}\n- {}*a{}\n", "[".repeat(40), "]".repeat(40));
        let field = format!("[1]{}", "[0]".repeat(40));
        check(aliased, &[&format!("2:43: {field}: nested more than 64 deep")]);
    }

    #[test]
    fn refuses_what_is_not_utf8() {
        check(b"a: 1\nb: \xc3\xa9 \xff\n", &["2:6: file is not valid UTF-8"]);
    }

    #[test]
    fn refuses_a_file_that_is_too_large() {
        let expect = "1:1: file is too large: 8388609 bytes, at most 8388608 are read";
        check(vec![b'#'; 8 * 1024 * 1024 + 1], &[expect]);
        check(vec![b'#'; 8 * 1024 * 1024], &[]);
    }

    #[test]
    fn survives_every_prefix_and_every_damaged_byte() {
        let sample =
            b"a: &x [1, 'two', \"three\\n\"]\n? b\n: !!str *x\n---\n- |\n  text\n- >-\n  more\n- {k: v, <<: 1}\n...\n";
        for end in 0..sample.len() {
            parse(&sample[..end]);
            for byte in b"\0\t\n !\"#%&'*,-:<>?@[]`{|}~\\\xff" {
                let mut damaged = sample.to_vec();
                damaged[end] = *byte;
                parse(&damaged);
            }
        }
    }
}
