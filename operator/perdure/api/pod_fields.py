"""The fields of a pod that Kubernetes knows, to find misspelled ones.

From the types in `core/v1/types.go` of k8s.io/api v0.36.3 (Kubernetes 1.36). A field of a newer version is not in this list.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

POD_SPEC: Final = "PodSpec"
"""The type of the spec of a pod."""

CONTAINER: Final = "Container"
"""The type of a container."""

VERSION: Final = "1.36"
"""The version of Kubernetes whose fields are listed."""

_FIELDS: Final = """\
PodSpec: activeDeadlineSeconds affinity:Affinity automountServiceAccountToken containers:Container
    dnsConfig:PodDNSConfig dnsPolicy enableServiceLinks hostAliases:HostAlias hostIPC hostNetwork hostPID hostUsers
    hostname hostnameOverride imagePullSecrets:LocalObjectReference initContainers:Container nodeName nodeSelector
    os:PodOS overhead preemptionPolicy priority priorityClassName readinessGates:PodReadinessGate
    resourceClaims:PodResourceClaim resources:ResourceRequirements restartPolicy runtimeClassName schedulerName
    schedulingGates:PodSchedulingGate schedulingGroup:PodSchedulingGroup securityContext:PodSecurityContext
    serviceAccount serviceAccountName setHostnameAsFQDN shareProcessNamespace subdomain
    terminationGracePeriodSeconds tolerations:Toleration topologySpreadConstraints:TopologySpreadConstraint
    volumes:Volume
Container: args command env:EnvVar envFrom:EnvFromSource image imagePullPolicy lifecycle:Lifecycle
    livenessProbe:Probe name ports:ContainerPort readinessProbe:Probe resizePolicy:ContainerResizePolicy
    resources:ResourceRequirements restartPolicy restartPolicyRules:ContainerRestartRule
    securityContext:SecurityContext startupProbe:Probe stdin stdinOnce terminationMessagePath
    terminationMessagePolicy tty volumeDevices:VolumeDevice volumeMounts:VolumeMount workingDir
AWSElasticBlockStoreVolumeSource: fsType partition readOnly volumeID
Affinity: nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAntiAffinity
AppArmorProfile: localhostProfile type
AzureDiskVolumeSource: cachingMode diskName diskURI fsType kind readOnly
AzureFileVolumeSource: readOnly secretName shareName
CSIVolumeSource: driver fsType nodePublishSecretRef:LocalObjectReference readOnly volumeAttributes
Capabilities: add drop
CephFSVolumeSource: monitors path readOnly secretFile secretRef:LocalObjectReference user
CinderVolumeSource: fsType readOnly secretRef:LocalObjectReference volumeID
ClusterTrustBundleProjection: labelSelector name optional path signerName
ConfigMapEnvSource: name optional
ConfigMapKeySelector: key name optional
ConfigMapProjection: items:KeyToPath name optional
ConfigMapVolumeSource: defaultMode items:KeyToPath name optional
ContainerPort: containerPort hostIP hostPort name protocol
ContainerResizePolicy: resourceName restartPolicy
ContainerRestartRule: action exitCodes:ContainerRestartRuleOnExitCodes
ContainerRestartRuleOnExitCodes: operator values
DownwardAPIProjection: items:DownwardAPIVolumeFile
DownwardAPIVolumeFile: fieldRef:ObjectFieldSelector mode path resourceFieldRef:ResourceFieldSelector
DownwardAPIVolumeSource: defaultMode items:DownwardAPIVolumeFile
EmptyDirVolumeSource: medium sizeLimit
EnvFromSource: configMapRef:ConfigMapEnvSource prefix secretRef:SecretEnvSource
EnvVar: name value valueFrom:EnvVarSource
EnvVarSource: configMapKeyRef:ConfigMapKeySelector fieldRef:ObjectFieldSelector fileKeyRef:FileKeySelector
    resourceFieldRef:ResourceFieldSelector secretKeyRef:SecretKeySelector
EphemeralVolumeSource: volumeClaimTemplate:PersistentVolumeClaimTemplate
ExecAction: command
FCVolumeSource: fsType lun readOnly targetWWNs wwids
FileKeySelector: key optional path volumeName
FlexVolumeSource: driver fsType options readOnly secretRef:LocalObjectReference
FlockerVolumeSource: datasetName datasetUUID
GCEPersistentDiskVolumeSource: fsType partition pdName readOnly
GRPCAction: port service
GitRepoVolumeSource: directory repository revision
GlusterfsVolumeSource: endpoints path readOnly
HTTPGetAction: host httpHeaders:HTTPHeader path port scheme
HTTPHeader: name value
HostAlias: hostnames ip
HostPathVolumeSource: path type
ISCSIVolumeSource: chapAuthDiscovery chapAuthSession fsType initiatorName iqn iscsiInterface lun portals readOnly
    secretRef:LocalObjectReference targetPortal
ImageVolumeSource: pullPolicy reference
KeyToPath: key mode path
Lifecycle: postStart:LifecycleHandler preStop:LifecycleHandler stopSignal
LifecycleHandler: exec:ExecAction httpGet:HTTPGetAction sleep:SleepAction tcpSocket:TCPSocketAction
LocalObjectReference: name
NFSVolumeSource: path readOnly server
NodeAffinity: preferredDuringSchedulingIgnoredDuringExecution:PreferredSchedulingTerm
    requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
NodeSelector: nodeSelectorTerms:NodeSelectorTerm
NodeSelectorRequirement: key operator values
NodeSelectorTerm: matchExpressions:NodeSelectorRequirement matchFields:NodeSelectorRequirement
ObjectFieldSelector: apiVersion fieldPath
PersistentVolumeClaimSpec: accessModes dataSource:TypedLocalObjectReference dataSourceRef:TypedObjectReference
    resources:VolumeResourceRequirements selector storageClassName volumeAttributesClassName volumeMode volumeName
PersistentVolumeClaimTemplate: metadata spec:PersistentVolumeClaimSpec
PersistentVolumeClaimVolumeSource: claimName readOnly
PhotonPersistentDiskVolumeSource: fsType pdID
PodAffinity: preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm
    requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm
PodAffinityTerm: labelSelector matchLabelKeys mismatchLabelKeys namespaceSelector namespaces topologyKey
PodAntiAffinity: preferredDuringSchedulingIgnoredDuringExecution:WeightedPodAffinityTerm
    requiredDuringSchedulingIgnoredDuringExecution:PodAffinityTerm
PodCertificateProjection: certificateChainPath credentialBundlePath keyPath keyType maxExpirationSeconds signerName
    userAnnotations
PodDNSConfig: nameservers options:PodDNSConfigOption searches
PodDNSConfigOption: name value
PodOS: name
PodReadinessGate: conditionType
PodResourceClaim: name resourceClaimName resourceClaimTemplateName
PodSchedulingGate: name
PodSchedulingGroup: podGroupName
PodSecurityContext: appArmorProfile:AppArmorProfile fsGroup fsGroupChangePolicy runAsGroup runAsNonRoot runAsUser
    seLinuxChangePolicy seLinuxOptions:SELinuxOptions seccompProfile:SeccompProfile supplementalGroups
    supplementalGroupsPolicy sysctls:Sysctl windowsOptions:WindowsSecurityContextOptions
PortworxVolumeSource: fsType readOnly volumeID
PreferredSchedulingTerm: preference:NodeSelectorTerm weight
Probe: exec:ExecAction failureThreshold grpc:GRPCAction httpGet:HTTPGetAction initialDelaySeconds periodSeconds
    successThreshold tcpSocket:TCPSocketAction terminationGracePeriodSeconds timeoutSeconds
ProjectedVolumeSource: defaultMode sources:VolumeProjection
QuobyteVolumeSource: group readOnly registry tenant user volume
RBDVolumeSource: fsType image keyring monitors pool readOnly secretRef:LocalObjectReference user
ResourceClaim: name request
ResourceFieldSelector: containerName divisor resource
ResourceRequirements: claims:ResourceClaim limits requests
SELinuxOptions: level role type user
ScaleIOVolumeSource: fsType gateway protectionDomain readOnly secretRef:LocalObjectReference sslEnabled storageMode
    storagePool system volumeName
SeccompProfile: localhostProfile type
SecretEnvSource: name optional
SecretKeySelector: key name optional
SecretProjection: items:KeyToPath name optional
SecretVolumeSource: defaultMode items:KeyToPath optional secretName
SecurityContext: allowPrivilegeEscalation appArmorProfile:AppArmorProfile capabilities:Capabilities privileged
    procMount readOnlyRootFilesystem runAsGroup runAsNonRoot runAsUser seLinuxOptions:SELinuxOptions
    seccompProfile:SeccompProfile windowsOptions:WindowsSecurityContextOptions
ServiceAccountTokenProjection: audience expirationSeconds path
SleepAction: seconds
StorageOSVolumeSource: fsType readOnly secretRef:LocalObjectReference volumeName volumeNamespace
Sysctl: name value
TCPSocketAction: host port
Toleration: effect key operator tolerationSeconds value
TopologySpreadConstraint: labelSelector matchLabelKeys maxSkew minDomains nodeAffinityPolicy nodeTaintsPolicy
    topologyKey whenUnsatisfiable
TypedLocalObjectReference: apiGroup kind name
TypedObjectReference: apiGroup kind name namespace
Volume: awsElasticBlockStore:AWSElasticBlockStoreVolumeSource azureDisk:AzureDiskVolumeSource
    azureFile:AzureFileVolumeSource cephfs:CephFSVolumeSource cinder:CinderVolumeSource
    configMap:ConfigMapVolumeSource csi:CSIVolumeSource downwardAPI:DownwardAPIVolumeSource
    emptyDir:EmptyDirVolumeSource ephemeral:EphemeralVolumeSource fc:FCVolumeSource flexVolume:FlexVolumeSource
    flocker:FlockerVolumeSource gcePersistentDisk:GCEPersistentDiskVolumeSource gitRepo:GitRepoVolumeSource
    glusterfs:GlusterfsVolumeSource hostPath:HostPathVolumeSource image:ImageVolumeSource iscsi:ISCSIVolumeSource
    name nfs:NFSVolumeSource persistentVolumeClaim:PersistentVolumeClaimVolumeSource
    photonPersistentDisk:PhotonPersistentDiskVolumeSource portworxVolume:PortworxVolumeSource
    projected:ProjectedVolumeSource quobyte:QuobyteVolumeSource rbd:RBDVolumeSource scaleIO:ScaleIOVolumeSource
    secret:SecretVolumeSource storageos:StorageOSVolumeSource vsphereVolume:VsphereVirtualDiskVolumeSource
VolumeDevice: devicePath name
VolumeMount: mountPath mountPropagation name readOnly recursiveReadOnly subPath subPathExpr
VolumeProjection: clusterTrustBundle:ClusterTrustBundleProjection configMap:ConfigMapProjection
    downwardAPI:DownwardAPIProjection podCertificate:PodCertificateProjection secret:SecretProjection
    serviceAccountToken:ServiceAccountTokenProjection
VolumeResourceRequirements: limits requests
VsphereVirtualDiskVolumeSource: fsType storagePolicyID storagePolicyName volumePath
WeightedPodAffinityTerm: podAffinityTerm:PodAffinityTerm weight
WindowsSecurityContextOptions: gmsaCredentialSpec gmsaCredentialSpecName hostProcess runAsUserName
"""
"""Each type with its fields. After a colon is the type of the field, if it is listed, or that of the items of a list."""


def unknown_fields(of_type: str, value: Any) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the fields of a value that its type does not have.

    Args:
        of_type: The type, such as `Container`.
        value: The value. A part that should be an object, but is not one, is skipped; so are the directives of a patch.

    Yields:
        The path of the object within the value, which is empty or ends with a dot; the field; and the fields of the type.
    """
    known = _types()[of_type]
    for name, field in value.items() if isinstance(value, dict) else ():
        if name not in known:
            if not name.startswith("$"):
                yield "", name, list(known)
            continue
        if not known[name]:
            continue
        entries = enumerate(field) if isinstance(field, list) else ((None, field),)
        for index, entry in entries:
            below = name if index is None else f"{name}[{index}]"
            for path, unknown, others in unknown_fields(known[name], entry):
                yield f"{below}.{path}", unknown, others


@cache
def _types() -> dict[str, dict[str, str]]:
    types: dict[str, dict[str, str]] = {}
    for line in _FIELDS.replace("\n    ", " ").splitlines():
        name, _, fields = line.partition(": ")
        types[name] = {field: of_type for field, _, of_type in (word.partition(":") for word in fields.split())}
    return types
