//! What several tests need: every kind with its round trip and its schema, and an independent validator.

use api::decode::{DecodeError, Decoded, Root};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Decodes and encodes again; also returns the fields nobody knew.
pub(crate) type RoundTrip = fn(Value) -> Result<(Value, Vec<String>), String>;

/// A kind, reduced to functions.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// `None` for the body of a request or an answer, which has no kind.
    pub(crate) api_version: Option<&'static str>,
    pub(crate) round_trip: RoundTrip,
    pub(crate) schema: fn() -> Value,
}

impl Kind {
    fn of<T: Root + JsonSchema + Serialize>() -> Self {
        Self {
            name: T::KIND,
            api_version: Some(T::API_VERSION),
            round_trip: round_trip::<T>,
            schema: api::schema::structural::<T>,
        }
    }
}

fn round_trip<T: Root + Serialize>(sent: Value) -> Result<(Value, Vec<String>), String> {
    encode(api::decode::object::<T>(sent))
}

fn encode<T: Serialize>(decoded: Result<Decoded<T>, DecodeError>) -> Result<(Value, Vec<String>), String> {
    let decoded = decoded.map_err(|error| error.to_string())?;
    let again = serde_json::to_value(&decoded.object).map_err(|error| error.to_string())?;
    Ok((again, decoded.unknown))
}

/// Every kind that has a CRD.
pub(crate) fn kinds() -> Vec<Kind> {
    vec![
        Kind::of::<api::vm::VirtualMachine>(),
        Kind::of::<api::vmi::VirtualMachineInstance>(),
        Kind::of::<api::migration::VirtualMachineInstanceMigration>(),
        Kind::of::<api::replicaset::VirtualMachineInstanceReplicaSet>(),
        Kind::of::<api::preset::VirtualMachineInstancePreset>(),
        Kind::of::<api::kubevirt::KubeVirt>(),
        Kind::of::<api::pool::VirtualMachinePool>(),
        Kind::of::<api::snapshot::VirtualMachineSnapshot>(),
        Kind::of::<api::snapshot::VirtualMachineSnapshotContent>(),
        Kind::of::<api::restore::VirtualMachineRestore>(),
        Kind::of::<api::export::VirtualMachineExport>(),
        Kind::of::<api::clone::VirtualMachineClone>(),
        Kind::of::<api::instancetype::VirtualMachineInstancetype>(),
        Kind::of::<api::instancetype::VirtualMachineClusterInstancetype>(),
        Kind::of::<api::preference::VirtualMachinePreference>(),
        Kind::of::<api::preference::VirtualMachineClusterPreference>(),
        Kind::of::<api::migration_policy::MigrationPolicy>(),
        Kind::of::<api::backup::VirtualMachineBackup>(),
        Kind::of::<api::backup::VirtualMachineBackupTracker>(),
        Kind::of::<api::plugin::Plugin>(),
    ]
}

/// Every body of a request or an answer under subresources.kubevirt.io.
pub(crate) fn bodies() -> Vec<Kind> {
    macro_rules! bodies {
        ($($name:ident),* $(,)?) => {
            vec![$(Kind {
                name: stringify!($name),
                api_version: None,
                round_trip: |sent| encode(api::decode::part::<api::subresources::$name>(sent)),
                schema: api::schema::structural::<api::subresources::$name>,
            }),*]
        };
    }
    bodies![
        StartOptions,
        StopOptions,
        RestartOptions,
        PauseOptions,
        UnpauseOptions,
        MigrateOptions,
        AddVolumeOptions,
        RemoveVolumeOptions,
        EvacuateCancelOptions,
        FreezeUnfreezeTimeout,
        ObjectGraphNode,
        ObjectGraphOptions,
        SEVMeasurementInfo,
        SEVPlatformInfo,
        SEVSecretOptions,
        SEVSessionOptions,
        VirtualMachineInstanceGuestAgentInfo,
        GuestAgentCommandInfo,
        VirtualMachineInstanceGuestOSUser,
        VirtualMachineInstanceFileSystem,
        VirtualMachineInstanceFileSystemDisk,
        VirtualMachineInstanceFileSystemInfo,
    ]
}

/// What is wrong with an object by a structural schema, unknown fields included.
pub(crate) fn validate(schema: &Value, object: &Value) -> Vec<String> {
    let schema = to_json_schema(schema, true);
    match jsonschema::validator_for(&schema) {
        Ok(validator) => {
            validator.iter_errors(object).map(|error| format!("{}: {error}", error.instance_path())).collect()
        }
        Err(error) => vec![format!("the schema itself is wrong: {error}")],
    }
}

/// The dialect of Kubernetes as plain JSON Schema, strict about unknown fields.
fn to_json_schema(schema: &Value, root: bool) -> Value {
    let Value::Object(fields) = schema else { return schema.clone() };
    let mut plain = Map::new();
    for (key, value) in fields {
        let value = match key.as_str() {
            "properties" => value
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, property)| (name.clone(), to_json_schema(property, false)))
                .collect::<Map<_, _>>()
                .into(),
            "items" | "additionalProperties" => to_json_schema(value, false),
            key if key.starts_with("x-kubernetes") => continue,
            "nullable" | "description" | "default" | "format" => continue,
            _ => value.clone(),
        };
        plain.insert(key.clone(), value);
    }
    if fields.contains_key("properties") && !fields.contains_key("x-kubernetes-preserve-unknown-fields") {
        plain.insert("additionalProperties".to_owned(), Value::Bool(false));
    }
    if root {
        plain.insert("$schema".to_owned(), "https://json-schema.org/draft/2020-12/schema".into());
    }
    if fields.contains_key("nullable") { json!({ "anyOf": [plain, { "type": "null" }] }) } else { plain.into() }
}
