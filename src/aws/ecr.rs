//! ECR: repositories with the images in them, and the password for its registry.

use std::collections::BTreeMap;

use aws_sdk_ecr::Client;
use aws_sdk_ecr::types::{ImageScanningConfiguration, ImageTagMutability, Tag};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::{Answer, Aws};
use crate::error::ServiceError;
use crate::secret::Secret;

const SERVICE: &str = "ecr";

/// A repository.
#[derive(Debug, Clone, PartialEq)]
pub struct Repository {
    pub name: String,
    /// `account.dkr.ecr.region.amazonaws.com/name`
    pub uri: String,
    pub arn: String,
}

/// Something in a repository.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredImage {
    pub digest: String,
    pub tags: Vec<String>,
    pub bytes: u64,
}

/// The service, as far as it is used here.
#[derive(Debug, Clone)]
pub struct Ecr(Client);

impl Ecr {
    /// Of this account and region.
    pub fn new(aws: &Aws) -> Self {
        Self(Client::new(&aws.config))
    }

    /// Every repository whose name begins with `prefix`.
    pub async fn repositories(&self, prefix: &str) -> Result<Vec<Repository>, ServiceError> {
        // The API has no filter by prefix; a page holds a thousand.
        let mut pages = self.0.describe_repositories().max_results(1000).into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let repositories = page.answer(SERVICE, "DescribeRepositories")?.repositories.unwrap_or_default();
            found.extend(repositories.into_iter().map(shown).filter(|repository| repository.name.starts_with(prefix)));
        }
        Ok(found)
    }

    /// The repository of that name.
    pub async fn repository(&self, name: &str) -> Result<Option<Repository>, ServiceError> {
        let answer = self.0.describe_repositories().repository_names(name).send().await.or_none(SERVICE, "DescribeRepositories", &["RepositoryNotFoundException"])?;
        Ok(answer.and_then(|answer| answer.repositories).unwrap_or_default().into_iter().next().map(shown))
    }

    /// The tags of a resource.
    pub async fn tags(&self, arn: &str) -> Result<BTreeMap<String, String>, ServiceError> {
        let answer = self.0.list_tags_for_resource().resource_arn(arn).send().await.or_none(SERVICE, "ListTagsForResource", &["RepositoryNotFoundException"])?;
        Ok(answer.and_then(|answer| answer.tags).unwrap_or_default().into_iter().map(|tag| (tag.key, tag.value)).collect())
    }

    /// What is in a repository; `None`: there is no such repository.
    pub async fn images(&self, repository: &str) -> Result<Option<Vec<StoredImage>>, ServiceError> {
        let mut pages = self.0.describe_images().repository_name(repository).into_paginator().send();
        let mut found = Vec::new();
        while let Some(page) = pages.next().await {
            let Some(page) = page.or_none(SERVICE, "DescribeImages", &["RepositoryNotFoundException"])? else { return Ok(None) };
            found.extend(page.image_details.unwrap_or_default().into_iter().map(|image| StoredImage {
                digest: image.image_digest.unwrap_or_default(),
                tags: image.image_tags.unwrap_or_default(),
                bytes: image.image_size_in_bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or_default(),
            }));
        }
        Ok(Some(found))
    }

    /// Makes a repository whose tags cannot be moved; `None`: one of that name exists.
    pub async fn create(&self, name: &str, tags: &[(&str, &str)]) -> Result<Option<Repository>, ServiceError> {
        let tags = tags.iter().map(|(key, value)| Tag::builder().key(*key).value(*value).build()).collect::<Result<Vec<_>, _>>();
        let tags = tags.map_err(|e| odd("CreateRepository", e.to_string()))?;
        let call = self.0.create_repository().repository_name(name).image_tag_mutability(ImageTagMutability::Immutable);
        let scanning = ImageScanningConfiguration::builder().scan_on_push(false).build();
        let answer = call.image_scanning_configuration(scanning).set_tags(Some(tags)).send().await;
        let Some(answer) = answer.or_none(SERVICE, "CreateRepository", &["RepositoryAlreadyExistsException"])? else { return Ok(None) };
        answer.repository.map(|repository| Some(shown(repository))).ok_or_else(|| odd("CreateRepository", "the answer names no repository".into()))
    }

    /// Deletes a repository with everything in it; `false`: there is none.
    pub async fn delete(&self, name: &str) -> Result<bool, ServiceError> {
        let answer = self.0.delete_repository().repository_name(name).force(true).send().await;
        Ok(answer.or_none(SERVICE, "DeleteRepository", &["RepositoryNotFoundException"])?.is_some())
    }

    /// User and password for the registry's data plane; good for twelve hours.
    pub async fn password(&self) -> Result<(String, Secret), ServiceError> {
        let answer = self.0.get_authorization_token().send().await.answer(SERVICE, "GetAuthorizationToken")?;
        let token = answer.authorization_data.unwrap_or_default().into_iter().find_map(|data| data.authorization_token);
        let pair = token.and_then(|token| STANDARD.decode(token).ok()).and_then(|bytes| String::from_utf8(bytes).ok());
        let pair = pair.as_deref().and_then(|pair| pair.split_once(':'));
        pair.map(|(user, password)| (user.to_owned(), Secret::new(password))).ok_or_else(|| odd("GetAuthorizationToken", "the answer holds no user and password".into()))
    }
}

fn shown(repository: aws_sdk_ecr::types::Repository) -> Repository {
    Repository { name: repository.repository_name.unwrap_or_default(), uri: repository.repository_uri.unwrap_or_default(), arn: repository.repository_arn.unwrap_or_default() }
}

fn odd(operation: &str, message: String) -> ServiceError {
    ServiceError { service: SERVICE.into(), operation: operation.into(), code: "UnexpectedAnswer".into(), message, request_id: None, status: None }
}
