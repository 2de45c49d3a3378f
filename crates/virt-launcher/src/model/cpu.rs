//! What CPU a guest really has, whatever its model is called.

use hypervisor::qmp::commands::{QomGet, QueryCpuPaths};
use hypervisor::qmp::{Qmp, QmpError};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What a guest tells its CPU by, besides the features.
const NAMES: [&str; 4] = ["vendor", "family", "model", "stepping"];

/// The features of one register of one CPUID leaf.
#[derive(Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(rename_all = "kebab-case")]
struct Word {
    cpuid_input_eax: u64,
    cpuid_input_ecx: Option<u64>,
    cpuid_register: String,
    features: u64,
}

/// A digest of what the first CPU of the guest is; none if QEMU does not say so, as for CPUs that are no x86.
///
/// # Guarantees
/// It depends neither on the order in which QEMU lists features, nor on those that it knows and the CPU does not have.
pub(super) async fn found(qmp: &Qmp) -> Result<Option<String>, QmpError> {
    let cpus = answered(qmp.execute(QueryCpuPaths {}).await)?;
    let Some(first) = cpus.into_iter().flatten().min_by_key(|cpu| cpu.cpu_index) else { return Ok(None) };
    let Some(words) = property(qmp, &first.qom_path, "feature-words").await? else { return Ok(None) };
    let Ok(mut words) = serde_json::from_value::<Vec<Word>>(words) else { return Ok(None) };
    words.retain(|word| word.features != 0);
    words.sort_unstable();
    let mut sum = Sha256::new();
    for name in NAMES {
        let value = property(qmp, &first.qom_path, name).await?.unwrap_or_default();
        sum.update(format!("{name}={value}\n"));
    }
    for Word { cpuid_input_eax, cpuid_input_ecx, cpuid_register, features } in words {
        let subleaf = cpuid_input_ecx.unwrap_or_default();
        sum.update(format!("{cpuid_input_eax:x}.{subleaf:x}.{cpuid_register}={features:x}\n"));
    }
    Ok(Some(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// A property of an object; none if it has no such property.
async fn property(qmp: &Qmp, path: &str, property: &'static str) -> Result<Option<Value>, QmpError> {
    answered(qmp.execute(QomGet { path: path.to_owned(), property }).await)
}

/// An answer that can be read. A guest starts, and does not wait for a QEMU that says this in another way.
fn answered<T>(answer: Result<T, QmpError>) -> Result<Option<T>, QmpError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(QmpError::Refused { .. } | QmpError::Answer { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
