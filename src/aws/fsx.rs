//! FSx for Lustre: file systems have no unique name, so they are found by tag.

use std::collections::BTreeMap;

use aws_sdk_fsx::Client;
use aws_sdk_fsx::types::{CreateFileSystemLustreConfiguration, DeleteFileSystemLustreConfiguration, FileSystemType, LustreDeploymentType, StorageType, Tag};

use super::{Answer, Aws, TAG_DEPLOYMENT};
use crate::error::ServiceError;

const SERVICE: &str = "fsx";
/// Clients of the current AMIs (Lustre 2.15) cannot mount the default version 2.10 (FSx guide, "Lustre client compatibility"; read 2026-09-01).
const LUSTRE_VERSION: &str = "2.15";

/// A file system.
#[derive(Debug, Clone, PartialEq)]
pub struct FileSystem {
    pub id: String,
    /// `CREATING`, `AVAILABLE`, `FAILED`, `DELETING`, `UPDATING`, `MISCONFIGURED`, `MISCONFIGURED_UNAVAILABLE`.
    pub lifecycle: String,
    /// Why it failed, in the service's words.
    pub failure: Option<String>,
    pub dns_name: String,
    pub mount_name: String,
    pub capacity_gib: u32,
    pub tags: BTreeMap<String, String>,
    /// Seconds since 1970.
    pub created: i64,
}

/// What a file system is made from.
#[derive(Debug, Clone)]
pub struct NewFileSystem {
    pub subnet: String,
    pub security_group: String,
    pub capacity_gib: u32,
    /// MB/s per TiB.
    pub throughput: u32,
    pub tags: BTreeMap<String, String>,
    pub token: String,
}

/// The service, as far as it is used here.
#[derive(Debug, Clone)]
pub struct Fsx(Client);

impl Fsx {
    /// Of this account and region.
    pub fn new(aws: &Aws) -> Self {
        Self(Client::new(&aws.config))
    }

    /// Every file system that carries the deployment's tag, the oldest first.
    pub async fn of_deployment(&self, deployment: &str) -> Result<Vec<FileSystem>, ServiceError> {
        let mut pages = self.0.describe_file_systems().into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let systems = page.answer(SERVICE, "DescribeFileSystems")?.file_systems.unwrap_or_default();
            found.extend(systems.into_iter().map(shown).filter(|system| system.tags.get(TAG_DEPLOYMENT).is_some_and(|name| name == deployment)));
        }
        found.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(found)
    }

    /// The file system of that id.
    pub async fn describe(&self, id: &str) -> Result<Option<FileSystem>, ServiceError> {
        let answer = self.0.describe_file_systems().file_system_ids(id).send().await.or_none(SERVICE, "DescribeFileSystems", &["FileSystemNotFound"])?;
        Ok(answer.and_then(|answer| answer.file_systems).unwrap_or_default().into_iter().next().map(shown))
    }

    /// Begins to make it: PERSISTENT_2 on SSD. With a token that was used before, the one made then.
    pub async fn create(&self, new: &NewFileSystem) -> Result<FileSystem, ServiceError> {
        let lustre = CreateFileSystemLustreConfiguration::builder().deployment_type(LustreDeploymentType::Persistent2).per_unit_storage_throughput(number(new.throughput)).build();
        let tags = new.tags.iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect();
        let call = self.0.create_file_system().file_system_type(FileSystemType::Lustre).file_system_type_version(LUSTRE_VERSION).storage_type(StorageType::Ssd);
        let call = call.storage_capacity(number(new.capacity_gib)).subnet_ids(&new.subnet).security_group_ids(&new.security_group).lustre_configuration(lustre);
        let answer = call.set_tags(Some(tags)).client_request_token(&new.token).send().await.answer(SERVICE, "CreateFileSystem")?;
        answer.file_system.map(shown).ok_or_else(|| no_answer("CreateFileSystem", "the answer names no file system".into()))
    }

    /// Begins to delete it, without a last backup. `false`: there is none.
    pub async fn delete(&self, id: &str) -> Result<bool, ServiceError> {
        let lustre = DeleteFileSystemLustreConfiguration::builder().skip_final_backup(true).build();
        let answer = self.0.delete_file_system().file_system_id(id).lustre_configuration(lustre).send().await;
        Ok(answer.or_none(SERVICE, "DeleteFileSystem", &["FileSystemNotFound"])?.is_some())
    }
}

fn number(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

fn no_answer(operation: &str, message: String) -> ServiceError {
    ServiceError { service: SERVICE.into(), operation: operation.into(), code: "NoAnswer".into(), message, request_id: None, status: None }
}

fn shown(system: aws_sdk_fsx::types::FileSystem) -> FileSystem {
    let tags = system.tags.unwrap_or_default().into_iter();
    FileSystem {
        id: system.file_system_id.unwrap_or_default(),
        lifecycle: system.lifecycle.map(|lifecycle| lifecycle.as_str().to_owned()).unwrap_or_default(),
        failure: system.failure_details.and_then(|details| details.message),
        dns_name: system.dns_name.unwrap_or_default(),
        mount_name: system.lustre_configuration.and_then(|lustre| lustre.mount_name).unwrap_or_default(),
        capacity_gib: system.storage_capacity.and_then(|size| u32::try_from(size).ok()).unwrap_or_default(),
        tags: tags.map(|tag| (tag.key.unwrap_or_default(), tag.value.unwrap_or_default())).collect(),
        created: system.creation_time.map(|time| time.secs()).unwrap_or_default(),
    }
}
