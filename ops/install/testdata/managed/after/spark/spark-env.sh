# Added by penstock install, which also takes it out.
export SPARK_DIST_CLASSPATH="${SPARK_DIST_CLASSPATH:+${SPARK_DIST_CLASSPATH}:}/opt/penstock/penstock-agent.jar"
