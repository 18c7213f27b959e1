# Penstock's agent in the DataNode and the NodeManager: Hadoop's scripts read this
# file from ${HADOOP_CONF_DIR}/shellprofile.d (or ${HADOOP_LIBEXEC_DIR}/shellprofile.d).
#
# Every hadoop, hdfs, yarn and mapred command reads it, in the command's own shell. So it must not
# fail, must not print or change anything that others use, sets no shell options, and works with
# "set -u" and "set -e". If the agent cannot run, the daemon starts without it; Hadoop comes first.
#
# The two paths may also be set in hadoop-env.sh, which is read earlier. They must consist of plain
# characters, because Hadoop's scripts split options at spaces. A JVM before Java 16 has no Unix
# sockets; it can be governed if the daemon's settings have "loopback".

PENSTOCK_AGENT_JAR="${PENSTOCK_AGENT_JAR:-/opt/penstock/penstock-agent.jar}"
PENSTOCK_SOCKET="${PENSTOCK_SOCKET:-/run/penstock/agent.sock}"
PENSTOCK_LEAST_JAVA="${PENSTOCK_LEAST_JAVA:-16}"

if declare -F hadoop_add_profile >/dev/null; then
  hadoop_add_profile penstock || true
fi

# Hadoop's scripts assemble the daemons' options after init and before finalize, so the options have
# to be complete here. The command is not known yet.
function _penstock_hadoop_init
{
  _penstock_reason=""
  if ! _penstock_usable; then
    return 0
  fi
  _penstock_add HDFS_DATANODE_OPTS HADOOP_DATANODE_OPTS ""
  _penstock_add YARN_NODEMANAGER_OPTS HADOOP_NODEMANAGER_OPTS ",role=nodemanager"
  return 0
}

# No command needs the jar on its class path: the configuration of daemons and shells names none of
# its classes, and -javaagent adds it where it is needed.
function _penstock_hadoop_classpath
{
  return 0
}

# Now the command is known: prints the reason if a daemon runs without the agent.
function _penstock_hadoop_finalize
{
  case "${HADOOP_SUBCMD:-}" in
    datanode|nodemanager)
      if [[ -n "${_penstock_reason:-}" ]] && declare -F hadoop_error >/dev/null; then
        hadoop_error "WARNING: penstock: this ${HADOOP_SUBCMD} is not governed: ${_penstock_reason}" || true
      fi
    ;;
  esac
  return 0
}

# Reports whether a JVM would start with the agent. A JVM that cannot read the jar does not start.
function _penstock_usable
{
  local jar="${PENSTOCK_AGENT_JAR:-}"
  local version least="${PENSTOCK_LEAST_JAVA:-16}"
  case "${jar}${PENSTOCK_SOCKET:-}" in
    *[!A-Za-z0-9_/.+@%-]*)
      _penstock_reason="PENSTOCK_AGENT_JAR or PENSTOCK_SOCKET has characters that options cannot have"
      return 1
    ;;
  esac
  if [[ ! -f "${jar}" || ! -r "${jar}" ]]; then
    _penstock_reason="cannot read ${jar}"
    return 1
  fi
  # A jar that is still being copied has no end: the last record of a zip file has 22 bytes.
  if [[ "$(tail -c 22 "${jar}" 2>/dev/null | head -c 4 2>/dev/null)" != $'PK\005\006' ]]; then
    _penstock_reason="${jar} is not a complete jar"
    return 1
  fi
  if [[ "${PENSTOCK_SOCKET:-}" != /* ]]; then
    _penstock_reason="PENSTOCK_SOCKET is not an absolute path"
    return 1
  fi
  version="$(_penstock_java)"
  if [[ ! "${version}" =~ ^[0-9]+$ || ! "${least}" =~ ^[0-9]+$ || "${version}" -lt "${least}" ]]; then
    _penstock_reason="it needs Java ${least} or later, ${JAVA_HOME:-java} is ${version:-of unknown version}"
    return 1
  fi
  return 0
}

# Prints the major version of the JVM that Hadoop will start. A JDK has it in a file, so that most
# commands need not start a JVM to find out.
function _penstock_java
{
  local line version=""
  if [[ -z "${JAVA_HOME:-}" ]]; then
    return 0
  fi
  if [[ -r "${JAVA_HOME}/release" ]]; then
    while IFS= read -r line || [[ -n "${line}" ]]; do
      case "${line}" in
        JAVA_VERSION=*) version="${line#JAVA_VERSION=}" ;;
      esac
    done < "${JAVA_HOME}/release"
  fi
  if [[ -z "${version}" && -x "${JAVA_HOME}/bin/java" ]]; then
    version="$("${JAVA_HOME}/bin/java" -version 2>&1 | head -n 1)" || true
    version="${version#*\"}"
  fi
  version="${version//\"/}"
  version="${version#1.}" # 1.8 is 8
  version="${version%%[!0-9]*}"
  printf '%s' "${version}"
  return 0
}

# Adds the agent to the options in variable $1, with $3 appended to its arguments, unless the
# options have an agent. $2 is the variable's name before Hadoop 3; if it is set, Hadoop's scripts
# use its value instead.
function _penstock_add
{
  local name="$1" old="$2"
  if [[ -n "${!old:-}" ]]; then
    name="${old}"
  fi
  case "${!name:-} ${HADOOP_OPTS:-}" in
    *-javaagent:*penstock-agent*|*"-javaagent:${PENSTOCK_AGENT_JAR}="*)
      return 0
    ;;
  esac
  printf -v "${name}" '%s' "${!name:+${!name} }-javaagent:${PENSTOCK_AGENT_JAR}=socket=${PENSTOCK_SOCKET}$3"
  return 0
}
