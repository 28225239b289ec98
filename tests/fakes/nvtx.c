/* An NVTX tool for tests, as NVTX_INJECTION64_PATH names one: it writes down each range of each
 * thread, with its payload read by the schema that was registered for it.
 *
 * FAKE_NVTX_FILE: where to, as "FILE.PID". FAKE_NVTX=bare: a tool without the extension for
 * payloads. */
#define NVTX_NO_IMPL
#include <nvtx3/nvToolsExtPayload.h>
#undef NVTX_NO_IMPL
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kMostSchemas = 32, kMostDomains = 4, kMostEntries = 16 };

typedef struct {
  const char* name;
  int isEnumeration;
  size_t count;
  size_t bytes;
  nvtxPayloadSchemaEntry_t entries[kMostEntries];
  nvtxPayloadEnum_t values[kMostEntries];
} Schema;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static FILE* file;
static Schema schemas[kMostSchemas];
static size_t schemaCount;
static char* domains[kMostDomains];
static size_t domainCount;
static __thread int depth;

static const uint64_t kFirstId = UINT64_C(1) << 32;

static const char* nameOf(nvtxDomainHandle_t domain) {
  const size_t number = (size_t)(uintptr_t)domain;
  return number >= 1 && number <= domainCount ? domains[number - 1] : "?";
}

static const Schema* find(uint64_t id) {
  return id >= kFirstId && id - kFirstId < schemaCount ? &schemas[id - kFirstId] : NULL;
}

static void write1(const char* text) {
  pthread_mutex_lock(&mutex);
  fprintf(file, "%d %s\n", (int)gettid(), text);
  fflush(file);
  pthread_mutex_unlock(&mutex);
}

static void printValue(char* text, size_t bytes, const nvtxPayloadSchemaEntry_t* entry,
                       const char* at) {
  int32_t word = 0;
  uint64_t number = 0;
  const Schema* schema = find(entry->type);
  switch (entry->type) {
    case NVTX_PAYLOAD_ENTRY_TYPE_UINT64:
      memcpy(&number, at, sizeof number);
      snprintf(text, bytes, "%" PRIu64, number);
      return;
    case NVTX_PAYLOAD_ENTRY_TYPE_INT32:
      memcpy(&word, at, sizeof word);
      snprintf(text, bytes, "%" PRId32, word);
      return;
    default: break;
  }
  if (schema == NULL || !schema->isEnumeration) {
    snprintf(text, bytes, "?type%" PRIu64, entry->type);
    return;
  }
  memcpy(&word, at, sizeof word);
  for (size_t i = 0; i < schema->count; ++i) {
    if (schema->values[i].value == (uint64_t)(int64_t)word) {
      snprintf(text, bytes, "%s", schema->values[i].name);
      return;
    }
  }
  snprintf(text, bytes, "%" PRId32, word);
}

/* "push DOMAIN FUNCTION depth N SCHEMA {label=value|label=value}" */
static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t* event) {
  char text[1024];
  size_t length = (size_t)snprintf(
      text, sizeof text, "push %s %s depth %d", nameOf(domain),
      event->messageType == NVTX_MESSAGE_TYPE_ASCII ? event->message.ascii : "?", depth);
  if (event->payloadType == NVTX_PAYLOAD_TYPE_EXT) {
    const nvtxPayloadData_t* data = (const nvtxPayloadData_t*)(uintptr_t)event->payload.ullValue;
    const Schema* schema = find(data->schemaId);
    if (event->reserved0 != 1 || schema == NULL || schema->bytes != data->size) {
      length += (size_t)snprintf(text + length, sizeof text - length, " bad payload");
      schema = NULL;
    } else {
      length += (size_t)snprintf(text + length, sizeof text - length, " [%s] ", schema->name);
    }
    for (size_t i = 0; schema != NULL && i < schema->count; ++i) {
      char value[64];
      const nvtxPayloadSchemaEntry_t* entry = &schema->entries[i];
      printValue(value, sizeof value, entry, (const char*)data->payload + entry->offset);
      length += (size_t)snprintf(text + length, sizeof text - length, "%s%s=%s", i == 0 ? "{" : "|",
                                 entry->name, value);
    }
    if (schema != NULL) snprintf(text + length, sizeof text - length, "}");
  }
  write1(text);
  return depth++;
}

static int pop(nvtxDomainHandle_t domain) {
  char text[128];
  snprintf(text, sizeof text, "pop %s depth %d", nameOf(domain), --depth);
  write1(text);
  return depth;
}

static nvtxDomainHandle_t createDomain(const char* name) {
  pthread_mutex_lock(&mutex);
  if (domainCount < kMostDomains) domains[domainCount++] = strdup(name);
  const nvtxDomainHandle_t made = (nvtxDomainHandle_t)(uintptr_t)domainCount;
  pthread_mutex_unlock(&mutex);
  return made;
}

static Schema* open(const char* name) {
  Schema* schema = &schemas[schemaCount++];
  schema->name = strdup(name);
  return schema;
}

static uint64_t registerSchema(nvtxDomainHandle_t domain,
                               const nvtxPayloadSchemaAttr_t* attributes) {
  if (schemaCount == kMostSchemas || attributes->numEntries > kMostEntries) return 0;
  char text[256];
  snprintf(text, sizeof text, "schema %s [%s] of %zu bytes", nameOf(domain), attributes->name,
           attributes->payloadStaticSize);
  write1(text);
  Schema* schema = open(attributes->name);
  schema->count = attributes->numEntries;
  schema->bytes = attributes->payloadStaticSize;
  memcpy(schema->entries, attributes->entries, schema->count * sizeof *schema->entries);
  for (size_t i = 0; i < schema->count; ++i)
    schema->entries[i].name = strdup(schema->entries[i].name);
  return kFirstId + schemaCount - 1;
}

static uint64_t registerEnumeration(nvtxDomainHandle_t domain,
                                    const nvtxPayloadEnumAttr_t* attributes) {
  if (schemaCount == kMostSchemas || attributes->numEntries > kMostEntries) return 0;
  char text[256];
  snprintf(text, sizeof text, "enumeration %s [%s] of %zu bytes", nameOf(domain), attributes->name,
           attributes->sizeOfEnum);
  write1(text);
  Schema* schema = open(attributes->name);
  schema->isEnumeration = 1;
  schema->count = attributes->numEntries;
  memcpy(schema->values, attributes->entries, schema->count * sizeof *schema->values);
  return kFirstId + schemaCount - 1;
}

static void begin(void) {
  char path[4096];
  const char* name = getenv("FAKE_NVTX_FILE");
  if (file != NULL) return;
  snprintf(path, sizeof path, "%s.%d", name == NULL ? "/tmp/fake_nvtx" : name, (int)getpid());
  file = fopen(path, "w");
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t getExportTable) {
  begin();
  if (file == NULL) return 0;
  const NvtxExportTableCallbacks* callbacks =
      (const NvtxExportTableCallbacks*)getExportTable(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table = NULL;
  unsigned int size = 0;
  if (callbacks == NULL || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size))
    return 0;
  if (size <= NVTX_CBID_CORE2_DomainCreateA) return 0;
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)createDomain;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
  return 1;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtxExtension(
    nvtxExtModuleInfo_t* module) {
  const char* mode = getenv("FAKE_NVTX");
  if (mode != NULL && strcmp(mode, "bare") == 0) return 0;
  if (module->moduleId != NVTX_EXT_PAYLOAD_MODULEID || module->segmentsCount < 1) return 0;
  intptr_t* slots = module->segments[0].functionSlots;
  slots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)registerSchema;
  slots[NVTX3EXT_CBID_nvtxPayloadEnumRegister] = (intptr_t)registerEnumeration;
  return 1;
}
