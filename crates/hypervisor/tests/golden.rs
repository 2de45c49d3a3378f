//! The arguments of QEMU for sample instances, or their refusal, word for word.
//!
//! Samples are in `samples/` and, where they are present, in `../shared/manifests`; what is expected is in `golden/`.
//! `ORLOP_GOLDEN=write .ci/suites golden` writes it anew, to be reviewed like code.
#![expect(clippy::expect_used, reason = "a test fails on the terminal")]

#[path = "support/lines.rs"]
mod lines;
#[path = "support/samples.rs"]
mod samples;
mod support;

use std::path::{Path, PathBuf};

use api::vmi::VirtualMachineInstance;
use serde_json::Value;
use testkit::{Harness, Need, Test, needs};

fn main() -> std::process::ExitCode {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut all = tests(&folder.join("samples"), &folder.join("golden"));
    let need = Need::Shared("manifests");
    let others = match need.missing() {
        None => tests(&needs::shared("manifests"), &folder.join("golden/manifests")),
        Some(_) => vec![Test::new("manifests", || ())],
    };
    all.extend(others.into_iter().map(|test| test.needing(&[need])));
    Harness::default().run(all)
}

fn tests(samples: &Path, golden: &Path) -> Vec<Test> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(samples).expect("samples").map(|entry| entry.expect("sample").path()).collect();
    files.sort();
    let mut tests = Vec::new();
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&file).expect("a sample is text");
        let document: Value = serde_saphyr::from_str(&text).expect("a sample is YAML");
        let expected = golden.join(format!("{name}.txt"));
        if let Some(instance) = samples::instance(document) {
            tests.push(Test::new(name, move || check(&instance, &expected)));
        }
    }
    tests
}

fn check(instance: &Value, file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let vmi =
        api::decode::object::<VirtualMachineInstance>(instance.clone()).map_err(|error| error.to_string())?.object;
    let actual = match lines::command_line(&vmi) {
        Ok(line) => {
            let variables = line.environment.iter().map(|(name, value)| format!("{name}={value}\n"));
            let options = line.arguments.iter().map(|argument| {
                let argument = argument.to_string_lossy();
                if argument.starts_with('-') { format!("{argument}\n") } else { format!("    {argument}\n") }
            });
            variables.chain(options).collect::<String>()
        }
        Err(refusals) => refusals.iter().map(|refusal| format!("refused: {refusal}\n")).collect(),
    };
    if std::env::var("ORLOP_GOLDEN").is_ok_and(|value| value == "write") {
        std::fs::create_dir_all(file.parent().unwrap_or(Path::new(".")))?;
        std::fs::write(file, &actual)?;
    }
    let expected = std::fs::read_to_string(file).unwrap_or_default();
    if actual == expected {
        Ok(())
    } else {
        Err(format!("{}\nexpected:\n{expected}\nactual:\n{actual}", file.display()).into())
    }
}
