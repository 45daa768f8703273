//! `postern eval`: evaluates an expression, and prints its value, or its error with the column.

use std::{fs, path::PathBuf};

use anyhow::Context;
use clap::{Args, ValueEnum};
use postern_base::yaml::to_yaml;
use postern_compile::expression::{Environment, Input, compile, notation};
use postern_engine::{
    budget::Budget,
    cel::{Expression, Value, format_double, format_duration, format_timestamp},
};
use postern_model::{File, read_document};
use serde_json::{Map as JsonMap, Value as Json};

const TOO_LARGE: &str = "the value is too large for JSON";

/// Evaluate a CEL expression over attributes from a file; exit code 1 if it has no value
#[derive(Debug, Args)]
pub struct Eval {
    /// The expression, such as `request.method == 'GET'`
    expression: String,
    /// A YAML or JSON file with attributes, such as `request: {method: GET, headers: {x-a: 1}}`
    #[arg(long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// How the value is written
    #[arg(long, short, value_enum, default_value = "text")]
    output: Output,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Output {
    /// For people: as CEL would write it
    #[value(alias = "cel", alias = "table")]
    Text,
    /// As JSON; bytes as hexadecimal digits
    Json,
    /// The same as YAML
    Yaml,
}

impl Eval {
    /// Writes the value to the standard output. An error shows the expression, with a caret under the column.
    pub fn run(self) -> anyhow::Result<()> {
        let value = self.evaluate()?;
        match self.output {
            Output::Text => println!("{}", notation(&value)),
            Output::Json => println!("{}", to_json(&value).context(TOO_LARGE)?),
            Output::Yaml => print!("{}", to_yaml(&to_json(&value).context(TOO_LARGE)?)),
        }
        Ok(())
    }

    fn evaluate(&self) -> anyhow::Result<Value> {
        let input = self.read_input()?;
        let compiled = compile(&self.expression, Environment::Response).map_err(|errors| {
            let shown: Vec<_> = errors.iter().map(|error| self.show(error.column, &error.message)).collect();
            anyhow::anyhow!(shown.join("\n"))
        })?;
        let expression = Expression::load(&compiled.wire)?;
        expression.evaluate(&input, &Budget::default()).map_err(|error| {
            let column = usize::try_from(error.column()).unwrap_or(1);
            anyhow::anyhow!(self.show(column, &error.to_string()))
        })
    }

    fn read_input(&self) -> anyhow::Result<Input> {
        let Some(path) = &self.input else { return Ok(Input::default()) };
        let name = path.display().to_string();
        let bytes = fs::read(path).with_context(|| format!("cannot read the input {name}"))?;
        let document = read_document(&File { name: name.clone(), bytes })?;
        Input::from_json(&document).map_err(|errors| {
            let lines: Vec<_> = errors.iter().map(|error| format!("{name}: {error}")).collect();
            anyhow::anyhow!(lines.join("\n"))
        })
    }

    /// The message, the line of the expression that has the error, and a caret under the column.
    fn show(&self, column: usize, message: &str) -> String {
        let mut before = column.saturating_sub(1);
        let mut lines = self.expression.split('\n').peekable();
        while let Some(line) = lines.next() {
            let length = line.chars().count();
            if before <= length || lines.peek().is_none() {
                let line: String = line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
                return format!("{message}\n  {line}\n  {}^", " ".repeat(before.min(length)));
            }
            before -= length + 1;
        }
        message.to_owned()
    }
}

/// The maximum number of parts of a value as JSON: parts can be shared, so that the size could be exponential.
const MOST_PARTS: usize = 100_000;

fn to_json(value: &Value) -> Option<Json> {
    let mut left = MOST_PARTS;
    json_within(value, &mut left)
}

fn json_within(value: &Value, left: &mut usize) -> Option<Json> {
    *left = left.checked_sub(1)?;
    Some(match value {
        Value::Null => Json::Null,
        Value::Bool(value) => Json::from(*value),
        Value::Int(value) => Json::from(*value),
        Value::Uint(value) => Json::from(*value),
        Value::Double(value) if value.is_finite() => Json::from(*value),
        Value::Double(value) => Json::from(format_double(*value)),
        Value::String(text) => Json::from(text.as_ref()),
        Value::Bytes(bytes) => Json::from(hex::encode(bytes)),
        Value::Timestamp(value) => Json::from(format_timestamp(*value)),
        Value::Duration(value) => Json::from(format_duration(*value)),
        Value::List(elements) => {
            elements.iter().map(|element| json_within(element, left)).collect::<Option<Vec<_>>>()?.into()
        }
        Value::Map(map) => {
            let entry = |(key, value): (&postern_engine::cel::Key, &Value)| {
                let key = match key.to_value() {
                    Value::String(text) => text.to_string(),
                    other => notation(&other),
                };
                Some((key, json_within(value, left)?))
            };
            Json::Object(map.iter().map(entry).collect::<Option<JsonMap<_, _>>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, expect: &str) {
        let eval = Eval { expression: expression.to_owned(), input: None, output: Output::Text };
        let shown = match eval.evaluate() {
            Ok(value) => format!("{} {}", notation(&value), to_json(&value).unwrap()),
            Err(error) => format!("{error:#}"),
        };
        assert_eq!(shown, expect, "for `{expression}`");
    }

    #[test]
    fn shows_values_as_cel_and_as_json() {
        check("1u + 2u", "3u 3");
        check("[1.0, 'it\\'s', b'\\xff', null]", r#"[1.0, 'it\'s', b'\xff', null] [1.0,"it's","ff",null]"#);
        check("{'a': {1: true}}", r#"{'a': {1: true}} {"a":{"1":true}}"#);
        check("duration('90m')", r#"duration('5400s') "5400s""#);
    }

    #[test]
    fn points_at_what_is_wrong() {
        check(
            "request.metod == 'GET'",
            "unknown attribute `request.metod`: did you mean `request.method`?\n  request.metod == 'GET'\n  ^",
        );
        check("'é' + string(1 / 0)", "division by zero\n  'é' + string(1 / 0)\n                 ^");
        check("true &&\n\t{}.a", "no such key `a`\n   {}.a\n   ^");
        check("1 +", "the expression ends too early\n  1 +\n     ^");
    }
}
