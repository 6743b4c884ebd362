//! The JSON schemas of a program: they are current, and they describe what its commands write.
//!
//! Each command runs for real, and its output must match its committed schema. Then the output is
//! damaged in every place, and each damaged output must not match, because a schema that accepts
//! everything would also pass the first check.

use crate::leash;
use jsonschema::Validator;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Number of elements of each array that are damaged; the others have the same schema.
const DAMAGED: usize = 3;

/// Exit statuses after which there is a result: nothing special, a difference or an exceeded
/// threshold, nothing to do, and an incomplete result.
const WITH_RESULT: [i32; 4] = [0, 3, 4, 6];
const PERMISSION_IS_MISSING: i32 = 5;

/// A program whose results have schemas.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Name of the program, with which the titles of its schemas begin.
    pub name: &'static str,
    /// Path of the program.
    pub path: &'static str,
    /// Path of the folder of the committed schemas.
    pub folder: &'static str,
    /// Command that writes the schemas anew.
    pub renew: &'static str,
}

impl Program {
    /// Returns the committed schema of a command.
    fn committed(&self, command: &str) -> Value {
        let path = Path::new(self.folder).join(file_name(command));
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}: run {}", path.display(), self.renew));
        serde_json::from_str(&text).expect("a schema is JSON")
    }

    /// Checks that every command with `--json` has a schema and a test.
    pub fn check_names(
        &self,
        definition: &clap::Command,
        schemas: &[(&str, Value)],
        tested: &[&str],
    ) {
        let mut commands = BTreeSet::new();
        with_json(definition, "", &mut commands);
        let owned = |names: &mut dyn Iterator<Item = &&str>| -> BTreeSet<String> {
            names.map(|&name| name.to_owned()).collect()
        };
        let with_schema = owned(&mut schemas.iter().map(|(name, _)| name));
        assert_eq!(with_schema, commands, "schemas of all commands with --json");
        let tested = owned(&mut tested.iter());
        assert_eq!(tested, commands, "tests of all commands with --json");
    }

    /// Checks that the committed schemas are those that the program's types have.
    pub fn check_committed(&self, schemas: &[(&str, Value)]) {
        let files = fs::read_dir(self.folder).unwrap();
        let files: BTreeSet<_> = files
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        let expected: BTreeSet<_> = schemas.iter().map(|(name, _)| file_name(name)).collect();
        let Program { folder, renew, .. } = self;
        assert_eq!(files, expected, "{folder} has other files: run {renew}");
        for (command, schema) in schemas {
            let is_current = &self.committed(command) == schema;
            assert!(
                is_current,
                "{} is not current: run {renew}",
                file_name(command)
            );
        }
    }

    /// Checks that each schema is valid and describes all its fields.
    pub fn check_descriptions(&self, schemas: &[(&str, Value)]) {
        for (command, schema) in schemas {
            assert!(jsonschema::meta::is_valid(schema), "{command}");
            assert!(schema.get("$id").is_none(), "{command}");
            assert_eq!(schema["title"], format!("{} {command} --json", self.name));
            let definitions = schema["$defs"].as_object().into_iter().flatten();
            let definitions = definitions.map(|(name, definition)| (name.as_str(), definition));
            for (name, object) in [(*command, schema)].into_iter().chain(definitions) {
                assert!(object["description"].is_string(), "{command}: {name}");
                for (field, value) in object["properties"].as_object().into_iter().flatten() {
                    let is_described = value["description"].is_string();
                    assert!(is_described, "{command}: {name}.{field}");
                }
            }
        }
    }
}

fn file_name(command: &str) -> String {
    format!("{}.json", command.replace(' ', "-"))
}

/// Returns the names of all commands whose arguments include `--json`.
fn with_json(command: &clap::Command, name: &str, found: &mut BTreeSet<String>) {
    let mut arguments = command.get_arguments();
    if arguments.any(|argument| argument.get_long() == Some("json")) {
        found.insert(name.to_owned());
    }
    for subcommand in command.get_subcommands() {
        let name = format!("{name} {}", subcommand.get_name());
        with_json(subcommand, name.trim_start(), found);
    }
}

/// A command with its committed schema.
#[derive(Debug)]
pub struct Subject {
    program: Program,
    command: &'static str,
    schema: Value,
    validator: Validator,
}

impl Subject {
    /// Reads the schema of a command.
    pub fn new(program: Program, command: &'static str) -> Subject {
        let schema = program.committed(command);
        Subject {
            program,
            command,
            validator: jsonschema::validator_for(&schema).expect("a valid schema"),
            schema,
        }
    }

    /// Runs the command with `--json`, and checks its result; returns the result.
    ///
    /// Without the permission that the command needs, prints why and returns `None`.
    pub fn run(&self, arguments: &[&str]) -> Option<Value> {
        let mut documents = self.run_lines(arguments)?;
        assert_eq!(documents.len(), 1, "{} writes one document", self.command);
        documents.pop()
    }

    /// Like [`run`](Self::run), for a command that writes one document per line.
    pub fn run_lines(&self, arguments: &[&str]) -> Option<Vec<Value>> {
        let output = leash::output(self.program(arguments).stdin(Stdio::null())).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let status = output.status.code().expect("an exit status");
        if status == PERMISSION_IS_MISSING {
            eprintln!("skipped: {} {arguments:?}: {said}", self.command);
            return None;
        }
        let name = format!("{} {arguments:?}: {status}: {said}", self.command);
        assert!(WITH_RESULT.contains(&status), "{name}");
        let lines = output.stdout.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        let documents = lines.map(|line| serde_json::from_slice(line).expect("JSON alone"));
        let documents: Vec<Value> = documents.collect();
        assert!(!documents.is_empty(), "{name}: there is no result");
        self.check_all(&documents);
        Some(documents)
    }

    /// Returns a command to run; `--json` stands before the other arguments.
    pub fn program(&self, arguments: &[&str]) -> Command {
        let mut program = Command::new(self.program.path);
        program.args(self.command.split(' '));
        program.args(["--json"]).args(arguments);
        program
    }

    /// Checks all documents, and damages the first of each form.
    pub fn check_all(&self, documents: &[Value]) {
        let mut damaged: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
        for document in documents {
            self.check(document);
            let fields = document.as_object().expect("an object");
            let times = damaged.entry(fields.keys().map(String::as_str).collect());
            let times = times.or_default();
            *times += 1;
            if *times <= DAMAGED {
                self.refuses_damage(document);
            }
        }
    }

    fn check(&self, document: &Value) {
        let errors = self.validator.iter_errors(document);
        let errors: Vec<_> = errors
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        let Program {
            name,
            folder,
            renew,
            ..
        } = self.program;
        let command = self.command;
        assert!(
            errors.is_empty(),
            "{name} {command} --json does not match {folder}/{}; if this is intended, run \
             {renew}\n{}",
            file_name(command),
            errors.join("\n")
        );
    }

    fn refuses(&self, document: &Value, damage: &str) {
        let accepted = self.validator.is_valid(document);
        assert!(!accepted, "{}: accepted: {damage}", self.command);
    }

    /// Damages a valid document in each place; none of the results may match the schema.
    fn refuses_damage(&self, document: &Value) {
        let wrong = json!({"no such field": []});
        let mut damaged = document.clone();
        for field in self.required(document) {
            let fields = damaged.as_object_mut().expect("an object");
            let removed = fields.remove(&field).expect("a field of the document");
            self.refuses(&damaged, &format!("without {field}"));
            damaged[&field] = removed;
        }
        let mut places = Vec::new();
        collect_places(document, String::new(), &mut places);
        for place in places {
            let value = damaged.pointer_mut(&place).expect("a place");
            let original = std::mem::replace(value, wrong.clone());
            self.refuses(&damaged, &format!("{place} is of a wrong type"));
            let value = damaged.pointer_mut(&place).expect("a place");
            *value = original.clone();
            if let Some(fields) = value.as_object_mut() {
                fields.insert("no such field".to_owned(), json!([]));
                self.refuses(&damaged, &format!("{place} has an unknown field"));
                *damaged.pointer_mut(&place).expect("a place") = original;
            }
        }
        assert_eq!(&damaged, document, "every damage was undone");
    }

    /// Returns the document's fields without those that the schema does not require.
    fn required(&self, document: &Value) -> Vec<String> {
        let fields = document.as_object().expect("an object").keys();
        let required = self.schema["required"].as_array();
        let is_required = |field: &&String| {
            required.is_none_or(|names| names.iter().any(|name| name == field.as_str()))
        };
        let required: Vec<String> = fields.filter(is_required).cloned().collect();
        assert!(!required.is_empty(), "{} requires no field", self.command);
        required
    }
}

/// Appends the JSON pointers of a value and of all values in it, but of few elements per array.
fn collect_places(value: &Value, place: String, places: &mut Vec<String>) {
    match value {
        Value::Array(elements) => {
            for (n, element) in elements.iter().enumerate().take(DAMAGED) {
                collect_places(element, format!("{place}/{n}"), places);
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                let field = field.replace('~', "~0").replace('/', "~1");
                collect_places(value, format!("{place}/{field}"), places);
            }
        }
        _ => {}
    }
    places.push(place);
}
