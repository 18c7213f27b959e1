# no end of line

# Added by penstock install, which also takes it out.
export SPARK_DIST_CLASSPATH="${SPARK_DIST_CLASSPATH:+${SPARK_DIST_CLASSPATH}:}/opt/penstock/penstock-agent.jar"
case "${SPARK_WORKER_OPTS:-}" in *-javaagent:/opt/penstock/penstock-agent.jar=*|*-javaagent:*penstock-agent*) ;; *) if [ -f /opt/penstock/penstock-agent.jar ] && [ -r /opt/penstock/penstock-agent.jar ]; then export SPARK_WORKER_OPTS="${SPARK_WORKER_OPTS:+${SPARK_WORKER_OPTS} }-javaagent:/opt/penstock/penstock-agent.jar=socket=/run/penstock/agent.sock,role=worker"; fi ;; esac
case "${SPARK_SHUFFLE_OPTS:-}" in *-javaagent:/opt/penstock/penstock-agent.jar=*|*-javaagent:*penstock-agent*) ;; *) if [ -f /opt/penstock/penstock-agent.jar ] && [ -r /opt/penstock/penstock-agent.jar ]; then export SPARK_SHUFFLE_OPTS="${SPARK_SHUFFLE_OPTS:+${SPARK_SHUFFLE_OPTS} }-javaagent:/opt/penstock/penstock-agent.jar=socket=/run/penstock/agent.sock,role=worker"; fi ;; esac
